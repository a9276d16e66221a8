package whatsapptest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mau.fi/libsignal/ecc"
	"go.mau.fi/whatsmeow/proto/waAdv"
	"go.mau.fi/whatsmeow/proto/waCompanionReg"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/util/hkdfutil"
	"go.mau.fi/whatsmeow/util/keys"
	"golang.org/x/crypto/curve25519"
	"google.golang.org/protobuf/proto"

	"gateway/channels"
	"gateway/channels/whatsapp"
)

// Ids of the queries of pairing.
const (
	pairDeviceID  = "pair-device-1"
	pairSuccessID = "pair-success-1"
)

// PairFile links a new device store at path to the bot's account, as a person does with a phone
// and `gateway pair`.
func (s *Server) PairFile(ctx context.Context, path string) error {
	c := whatsapp.New("whatsapp", path, &whatsapp.Options{BaseURL: s.base})
	var scanned error
	err := c.Pair(ctx, "", func(code channels.PairingCode) { scanned = s.Scan(code.QR) })
	return errors.Join(err, scanned)
}

// pairDevice returns the query that gives a new client its QR codes.
func (s *Server) pairDevice() node {
	refs := make([]node, 6)
	for i := range refs {
		refs[i] = node{Tag: "ref", Content: []byte(base64.StdEncoding.EncodeToString(random(24)))}
	}
	return node{Tag: "iq", Attrs: attrs{"from": types.ServerJID, "type": "set",
		"id": pairDeviceID, "xmlns": "md"}, Content: []node{{Tag: "pair-device", Content: refs}}}
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// Scan scans a QR code with the phone of the bot's owner. It returns when the phone has linked the
// device; the device's client stores that later.
func (s *Server) Scan(qr string) error {
	_, data, _ := strings.Cut(qr, "#")
	parts := strings.Split(data, ",")
	if len(parts) < 5 {
		return errors.New("whatsapptest: no QR code of a device")
	}
	var key [3][]byte // noise key, identity key, secret
	for i := range key {
		var err error
		if key[i], err = base64.StdEncoding.DecodeString(parts[i+1]); err != nil {
			return fmt.Errorf("whatsapptest: QR code: %w", err)
		}
	}
	if len(key[0]) != 32 {
		return errors.New("whatsapptest: QR code with a bad key")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	if s.wantPasskey {
		return s.askPasskey([32]byte(key[0]), key[2])
	}
	return s.link([32]byte(key[0]), key[1], key[2])
}

// link makes the client with a noise key a device of the bot. The caller holds s.mu.
func (s *Server) link(noise [32]byte, identity, secret []byte) error {
	c := s.unpaired[noise]
	if c == nil {
		return errors.New("whatsapptest: nobody waits to be linked with this code")
	}
	delete(s.unpaired, noise)
	asked := c.payload.GetDevicePairingData()
	var props waCompanionReg.DeviceProps
	if err := proto.Unmarshal(asked.GetDeviceProps(), &props); err != nil {
		s.violate("device properties: %v", err)
	}
	s.props = props.GetOs()
	d := s.addDevice(s.bot, &device{
		noise: noise, identity: identity, registration: asked.GetERegid(),
		signedKey: signedKey(asked.GetESkeyID(), asked.GetESkeyVal(), asked.GetESkeySig()),
	})
	signed, err := proto.Marshal(s.bot.vouch(d))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(signed)
	box, err := proto.Marshal(&waAdv.ADVSignedDeviceIdentityHMAC{
		Details: signed, HMAC: mac.Sum(nil),
	})
	if err != nil {
		return err
	}
	c.send(node{Tag: "iq", Attrs: attrs{"from": types.ServerJID, "type": "set",
		"id": pairSuccessID, "xmlns": "md", "t": unix(time.Now())},
		Content: []node{{Tag: "pair-success", Content: []node{
			{Tag: "device-identity", Content: box},
			{Tag: "platform", Attrs: attrs{"name": "android"}},
			{Tag: "device", Attrs: attrs{"jid": d.pn(), "lid": d.lid()}},
		}}}})
	return nil
}

func signedKey(id, value, signature []byte) node {
	return node{Tag: "skey", Content: []node{
		{Tag: "id", Content: id}, {Tag: "value", Content: value},
		{Tag: "signature", Content: signature},
	}}
}

// addDevice links d to a and tells everybody online. The caller holds s.mu.
func (s *Server) addDevice(a *account, d *device) *device {
	d.of, d.id = a, a.next
	a.next++ // ids are not reused
	a.devices[d.id] = d
	s.byNoise[d.noise] = d
	s.announce(a)
	return d
}

// announce tells clients that a's list of devices has changed. The caller holds s.mu.
func (s *Server) announce(a *account) {
	for _, d := range s.byNoise {
		if s.quiet || d.conn == nil || !d.conn.active {
			continue // it asks again when it connects
		}
		d.conn.send(node{Tag: "notification", Attrs: attrs{"type": "devices", "from": a.lid,
			"id": strconv.FormatInt(time.Now().UnixNano(), 10), "t": unix(time.Now())},
			Content: []node{{Tag: "update", Attrs: attrs{"device_hash": "2:changed"}}}})
	}
}

// vouch returns d's identity, signed by the phone of its account.
func (a *account) vouch(d *device) *waAdv.ADVSignedDeviceIdentity {
	details, _ := proto.Marshal(&waAdv.ADVDeviceIdentity{ // plain numbers always marshal
		RawID: proto.Uint32(1), Timestamp: proto.Uint64(uint64(time.Now().Unix())),
		KeyIndex: proto.Uint32(uint32(d.id)),
	})
	signature := ecc.CalculateSignature(ecc.NewDjbECPrivateKey(*a.primary.Priv),
		append(append([]byte{6, 0}, details...), d.identity...))
	return &waAdv.ADVSignedDeviceIdentity{
		Details: details, AccountSignatureKey: a.primary.Pub[:], AccountSignature: signature[:],
	}
}

// pairAnswer handles a client's answer to a query of pairing. The caller holds s.mu.
func (c *conn) pairAnswer(n *node) {
	switch {
	case n.Attrs["type"] == "error":
		c.s.violate("a client refuses to be linked: %s", n)
	case n.Attrs["id"] == pairSuccessID: // the client must reconnect as a linked device
		c.finish(node{Tag: "stream:error", Attrs: attrs{"code": "515"}})
	}
}

// A phonePairing is a device that waits for a code to be typed into the phone.
type phonePairing struct {
	noise     [32]byte
	phone     string
	wrapped   []byte // its ephemeral key, encrypted with the code
	ephemeral *keys.KeyPair
}

// linkCode is the device's side of pairing by phone code. The caller holds s.mu.
func (c *conn) linkCode(n *node, child node) {
	ref, _ := child.GetChildByTag("link_code_pairing_ref").Content.([]byte)
	switch child.Attrs["stage"] {
	case "companion_hello":
		to, _ := child.Attrs["jid"].(types.JID)
		wrapped, _ := child.GetChildByTag(
			"link_code_pairing_wrapped_companion_ephemeral_pub").Content.([]byte)
		display, _ := child.GetChildByTag("companion_platform_display").Content.([]byte)
		if len(wrapped) != 80 || string(display) != "Chrome (Linux)" || to != c.s.bot.pn {
			c.refuse(n, 400, "bad-request")
			return
		}
		name := base64.StdEncoding.EncodeToString(random(12))
		c.s.codes[name] = &phonePairing{
			noise: c.noise, phone: to.User, wrapped: wrapped, ephemeral: keys.NewKeyPair(),
		}
		c.result(n, node{Tag: "link_code_companion_reg", Content: []node{
			{Tag: "link_code_pairing_ref", Content: []byte(name)},
		}})
	case "companion_finish":
		p := c.s.codes[string(ref)]
		delete(c.s.codes, string(ref))
		bundle, _ := child.GetChildByTag("link_code_pairing_wrapped_key_bundle").Content.([]byte)
		identity, _ := child.GetChildByTag("companion_identity_public").Content.([]byte)
		if p == nil {
			c.refuse(n, 404, "item-not-found")
			return
		}
		c.result(n)
		if err := c.s.finishCode(p, bundle, identity); err != nil {
			c.s.violate("pairing by phone code: %v", err)
		}
	default:
		c.refuse(n, 400, "bad-request")
	}
}

// EnterCode enters a code, such as ABCD-EFGH, on the phone, as the bot's owner would.
func (s *Server) EnterCode(code string) error {
	code = strings.ReplaceAll(code, "-", "")
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	for ref, p := range s.codes {
		c := s.unpaired[p.noise]
		if c == nil {
			continue
		}
		wrapped := append(random(48), p.ephemeral.Pub[:]...)
		if err := codeCipher(code, wrapped, wrapped[48:]); err != nil {
			return err
		}
		theirs := append([]byte(nil), p.wrapped...)
		if err := codeCipher(code, theirs, theirs[48:]); err != nil {
			return err
		}
		p.wrapped = theirs
		c.send(node{Tag: "notification", Attrs: attrs{"from": types.ServerJID,
			"type": "link_code_companion_reg", "id": "link-code-1", "t": unix(time.Now())},
			Content: []node{{Tag: "link_code_companion_reg", Attrs: attrs{"stage": "primary_hello"},
				Content: []node{
					{Tag: "link_code_pairing_ref", Content: []byte(ref)},
					{Tag: "link_code_pairing_wrapped_primary_ephemeral_pub", Content: wrapped},
					{Tag: "primary_identity_pub", Content: s.bot.primary.Pub[:]},
				}}}})
		return nil
	}
	return errors.New("whatsapptest: nobody waits for a code")
}

// codeCipher encrypts or decrypts b in place. It derives the key from the code, and from the salt
// and the nonce at the beginning of wrapped.
func codeCipher(code string, wrapped, b []byte) error {
	key, err := pbkdf2.Key(sha256.New, code, wrapped[:32], 2<<16, 32)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	cipher.NewCTR(block, wrapped[32:48]).XORKeyStream(b, b)
	return nil
}

// finishCode links the device whose answer fits the code. The caller holds s.mu.
func (s *Server) finishCode(p *phonePairing, bundle, identity []byte) error {
	if len(bundle) < 44 || len(identity) != 32 {
		return errors.New("bundle too short")
	}
	shared, err := curve25519.X25519(p.ephemeral.Priv[:], p.wrapped[48:])
	if err != nil {
		return err
	}
	key := hkdfutil.SHA256(shared, bundle[:32],
		[]byte("link_code_pairing_key_bundle_encryption_key"), 32)
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	plain, err := gcm.Open(nil, bundle[32:44], bundle[44:], nil)
	if err != nil || len(plain) != 96 {
		return errors.New("the code was wrong")
	}
	both, err := curve25519.X25519(s.bot.primary.Priv[:], identity)
	if err != nil {
		return err
	}
	input := append(append(append([]byte(nil), shared...), both...), plain[64:]...)
	return s.link(p.noise, identity, hkdfutil.SHA256(input, nil, []byte("adv_secret"), 32))
}
