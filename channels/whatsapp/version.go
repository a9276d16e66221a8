package whatsapp

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"go.mau.fi/whatsmeow"
	"go.mau.fi/whatsmeow/proto/waCompanionReg"
	"go.mau.fi/whatsmeow/proto/waWa6"
	"go.mau.fi/whatsmeow/store"
	"google.golang.org/protobuf/proto"

	"gateway/channels"
)

// errOutdated reports that WhatsApp does not accept the client's version any more.
var errOutdated = &channels.AccountError{Reason: "WhatsApp does not accept this version of the " +
	"gateway any more. Install a newer one."}

// versionWait is the time limit for asking for the newest version.
const versionWait = 20 * time.Second

// renewVersion asks WhatsApp Web for its version, and reports whether it is newer than the one in
// use. Later clients use it. WhatsApp refuses old versions after some months, even if nothing else
// has changed.
func (c *Channel) renewVersion(ctx context.Context) bool {
	w, err := newWire(c.opts.Transport, c.opts.BaseURL)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	newest, err := whatsmeow.GetLatestVersion(ctx, &http.Client{Transport: w})
	if err != nil {
		c.log.WarnContext(ctx, "the newest version of WhatsApp Web could not be read", "err", err)
		return false
	}
	library := store.GetWAVersion()
	used := cmp.Or(c.version.Load(), &library)
	if !used.LessThan(*newest) {
		return false
	}
	c.version.Store(newest)
	c.log.WarnContext(ctx, "WhatsApp wants a newer client, so the gateway says that it is one: "+
		"install a newer gateway soon", "before", used.String(), "now", newest.String())
	return true
}

// payload returns d's introduction, with a name for the phone's list of devices. The library has
// only global variables for the name and the version.
func (c *Channel) payload(d *store.Device) *waWa6.ClientPayload {
	p := d.GetClientPayload()
	version := c.version.Load()
	if version != nil {
		p.UserAgent.AppVersion = version.ProtoAppVersion()
	}
	// Only a device that is not linked yet introduces itself.
	asked := p.GetDevicePairingData()
	if asked == nil {
		return p
	}
	if version != nil {
		hash := version.Hash()
		asked.BuildHash = hash[:]
	}
	var props waCompanionReg.DeviceProps
	if err := proto.Unmarshal(asked.DeviceProps, &props); err != nil {
		return p // with the library's name
	}
	props.Os = &c.opts.DeviceName
	if b, err := proto.Marshal(&props); err == nil {
		asked.DeviceProps = b
	}
	return p
}
