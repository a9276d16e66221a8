package whatsapptest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mau.fi/whatsmeow/proto/waCompanionReg"
	"go.mau.fi/whatsmeow/types"
	"go.mau.fi/whatsmeow/util/gcmutil"
	"go.mau.fi/whatsmeow/util/hkdfutil"
	"go.mau.fi/whatsmeow/util/keys"
	"golang.org/x/crypto/curve25519"
	"google.golang.org/protobuf/proto"
)

// A passkeyLink is the phone's side of a link that the account's passkey must confirm.
type passkeyLink struct {
	noise      [32]byte
	secret     []byte // of the QR code
	challenge  []byte
	ref        string
	commitment []byte // of the device, to its nonce
	identity   []byte // of the device, encoded
	device     *waCompanionReg.CompanionEphemeralIdentity
	ephemeral  *keys.KeyPair
	nonce      []byte
}

// passkeyID is the credential of the account's passkey, and passkeySignature what it signs with:
// the server does not check signatures.
var passkeyID, passkeySignature = []byte("credential"), []byte("signature of ")

// RequirePasskey makes WhatsApp want the passkey of the account for each QR code that is scanned.
func (s *Server) RequirePasskey() { s.change(func() { s.wantPasskey = true }) }

// askPasskey sends the challenge to the device whose QR code was scanned. The caller holds s.mu.
func (s *Server) askPasskey(noise [32]byte, secret []byte) error {
	c := s.unpaired[noise]
	if c == nil {
		return errors.New("whatsapptest: nobody waits to be linked with this code")
	}
	s.passkey = &passkeyLink{noise: noise, secret: secret, challenge: random(32),
		ref: base64.StdEncoding.EncodeToString(random(12)), ephemeral: keys.NewKeyPair(),
		nonce: random(32)}
	options, err := json.Marshal(map[string]any{"timeout": 600000, "rpId": "whatsapp.com",
		"challenge":        base64.RawURLEncoding.EncodeToString(s.passkey.challenge),
		"allowCredentials": []any{}, "userVerification": "required",
		"extensions": map[string]any{"uvm": true}})
	if err != nil {
		return err
	}
	c.send(node{Tag: "notification", Attrs: attrs{"from": types.ServerJID,
		"type": "passkey_prologue_request", "id": "passkey-1", "t": unix(time.Now())},
		Content: []node{{Tag: "passkey_request_options", Content: options}}})
	return nil
}

// SignChallenge answers a challenge as a browser with the account's passkey does.
func SignChallenge(challenge string) (string, error) {
	var options struct {
		Challenge        string           `json:"challenge"`
		RPID             string           `json:"rpId"`
		AllowCredentials []map[string]any `json:"allowCredentials"`
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(challenge)))
	if err := decoder.Decode(&options); err != nil {
		return "", err
	}
	if options.RPID != "whatsapp.com" || options.Challenge == "" ||
		bytes.Contains([]byte(challenge), []byte("null")) {
		return "", fmt.Errorf("whatsapptest: no browser takes the challenge %s", challenge)
	}
	client := fmt.Sprintf(`{"type":"webauthn.get","challenge":%q,"origin":"https://web.whatsapp.com"}`,
		options.Challenge)
	url := base64.RawURLEncoding.EncodeToString
	answer, err := json.Marshal(map[string]any{"id": url(passkeyID), "rawId": url(passkeyID),
		"type": "public-key", "authenticatorAttachment": "cross-platform",
		"clientExtensionResults": map[string]any{}, "response": map[string]any{
			"clientDataJSON": url([]byte(client)), "authenticatorData": url(random(37)),
			"signature":  url(append(bytes.Clone(passkeySignature), options.Challenge...)),
			"userHandle": url(random(16))}})
	return string(answer), err
}

// passkeyQuery handles a query of the device that must be confirmed. It returns false if child is
// no such query. The caller holds s.mu.
func (c *conn) passkeyQuery(n *node, child node) bool {
	p := c.s.passkey
	if p == nil || p.noise != c.noise {
		return false
	}
	content, _ := child.Content.([]byte)
	var err error
	switch child.Tag {
	case "ref":
		c.result(n, node{Tag: "ref", Content: []byte(p.ref)})
		return true
	case "passkey_prologue":
		err = p.prologue(&child)
	case "companion_nonce":
		err = p.open(content)
	case "encrypted_pairing_request":
		err = c.s.finishPasskey(content)
	default:
		return false
	}
	if err != nil {
		c.refuse(n, 400, "bad-request")
		return true
	}
	c.result(n)
	if child.Tag == "passkey_prologue" {
		identity, _ := proto.Marshal(&waCompanionReg.PrimaryEphemeralIdentity{ // plain bytes
			PublicKey: p.ephemeral.Pub[:], Nonce: p.nonce})
		c.send(node{Tag: "notification", Attrs: attrs{"from": types.ServerJID,
			"type": "crsc_continuation", "id": "passkey-2", "t": unix(time.Now())},
			Content: []node{{Tag: "primary_ephemeral_identity", Content: identity}}})
	}
	return true
}

// prologue checks the passkey's answer.
func (p *passkeyLink) prologue(child *node) error {
	part := func(tag string) []byte {
		b, _ := child.GetChildByTag(tag).Content.([]byte)
		return b
	}
	var answer types.WebAuthnResponse
	if err := json.Unmarshal(part("webauthn_assertion"), &answer); err != nil {
		return err
	}
	signed := append(bytes.Clone(passkeySignature),
		base64.RawURLEncoding.EncodeToString(p.challenge)...)
	if !bytes.Equal(part("credential_id"), passkeyID) ||
		!bytes.Equal(answer.Response.Signature, signed) {
		return errors.New("another passkey, or another challenge")
	}
	payload := new(waCompanionReg.ProloguePayload)
	p.device = new(waCompanionReg.CompanionEphemeralIdentity)
	err := proto.Unmarshal(part("prologue_payload"), payload)
	p.identity = payload.GetCompanionEphemeralIdentity()
	if err == nil {
		err = proto.Unmarshal(p.identity, p.device)
	}
	if err != nil || p.device.GetRef() != p.ref {
		return fmt.Errorf("another reference: %w", err)
	}
	p.commitment = payload.GetCommitment().GetHash()
	mac := hmac.New(sha256.New,
		hkdfutil.SHA256(p.secret, nil, []byte("shortcake-passkey-handoff-v1"), 32))
	mac.Write(part("prologue_payload"))
	if !hmac.Equal(mac.Sum(nil), part("pairing_handoff_proof")) {
		return errors.New("not the device that showed the QR code")
	}
	return nil
}

// open checks the device's nonce against its commitment.
func (p *passkeyLink) open(nonce []byte) error {
	hash := sha256.Sum256(append(bytes.Clone(p.identity), nonce...))
	if !bytes.Equal(hash[:], p.commitment) {
		return errors.New("not the nonce of the commitment")
	}
	return nil
}

// finishPasskey links the device. The caller holds s.mu.
func (s *Server) finishPasskey(sealed []byte) error {
	p := s.passkey
	box, request := new(waCompanionReg.EncryptedPairingRequest), new(waCompanionReg.PairingRequest)
	if err := proto.Unmarshal(sealed, box); err != nil {
		return err
	}
	shared, err := curve25519.X25519(p.ephemeral.Priv[:], p.device.GetPublicKey())
	if err != nil {
		return err
	}
	salt := fmt.Sprintf("Companion Pairing %d with ref %s", p.device.GetDeviceType(), p.ref)
	key := hkdfutil.SHA256(shared, []byte(salt), []byte("Pairing Information Encryption Key"), 32)
	plain, err := gcmutil.Decrypt(key, box.GetIV(), box.GetEncryptedPayload(), nil)
	if err == nil {
		err = proto.Unmarshal(plain, request)
	}
	if err != nil || !bytes.Equal(request.GetCompanionPublicKey(), p.noise[:]) {
		return fmt.Errorf("not the device of the QR code: %w", err)
	}
	s.passkey = nil
	return s.link(p.noise, request.GetCompanionIdentityKey(), request.GetAdvSecret())
}
