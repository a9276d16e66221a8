package whatsapptest

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/coder/websocket"
	"go.mau.fi/libsignal/ecc"
	"go.mau.fi/whatsmeow/proto/waCert"
	"go.mau.fi/whatsmeow/proto/waWa6"
	"go.mau.fi/whatsmeow/socket"
	"go.mau.fi/whatsmeow/util/gcmutil"
	"go.mau.fi/whatsmeow/util/hkdfutil"
	"go.mau.fi/whatsmeow/util/keys"
	"golang.org/x/crypto/curve25519"
	"google.golang.org/protobuf/proto"
)

// RootKey is the public key with which a [Server] proves itself. A test binary sets
// whatsmeow.WACertPubKey to it before anything connects; it is the same for every Server.
var RootKey = *root().Pub

// root returns the key pair that signs the servers' certificates, made from a fixed seed.
func root() *keys.KeyPair {
	return keys.NewKeyPairFromPrivateKey(sha256.Sum256([]byte("whatsapptest root key")))
}

// certificate returns the chain from the root to the key static, valid for a day.
func certificate(static *keys.KeyPair) ([]byte, error) {
	intermediate := keys.NewKeyPair()
	middle, err := sign(root(), 1, 0, intermediate.Pub[:])
	if err != nil {
		return nil, err
	}
	leaf, err := sign(intermediate, 2, 1, static.Pub[:])
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&waCert.CertChain{Intermediate: middle, Leaf: leaf})
}

func sign(
	by *keys.KeyPair, serial, issuer uint32, key []byte,
) (*waCert.CertChain_NoiseCertificate, error) {
	now := time.Now()
	details, err := proto.Marshal(&waCert.CertChain_NoiseCertificate_Details{
		Serial: &serial, IssuerSerial: &issuer, Key: key,
		NotBefore: proto.Uint64(uint64(now.Add(-time.Hour).Unix())),
		NotAfter:  proto.Uint64(uint64(now.Add(24 * time.Hour).Unix())),
	})
	if err != nil {
		return nil, err
	}
	signature := ecc.CalculateSignature(ecc.NewDjbECPrivateKey(*by.Priv), details)
	return &waCert.CertChain_NoiseCertificate{Details: details, Signature: signature[:]}, nil
}

// A noise is the responder's side of a Noise_XX_25519_AESGCM_SHA256 handshake.
type noise struct {
	hash, chain []byte
	key         cipher.AEAD
	n           uint32
}

func (x *noise) mixHash(b []byte) {
	sum := sha256.Sum256(append(append([]byte(nil), x.hash...), b...))
	x.hash = sum[:]
}

func (x *noise) split(in []byte) (first, second []byte) {
	out := hkdfutil.SHA256(in, x.chain, nil, 64)
	return out[:32], out[32:]
}

func (x *noise) mixKey(private, public []byte) error {
	shared, err := curve25519.X25519(private, public)
	if err != nil {
		return err
	}
	var key []byte
	x.chain, key = x.split(shared)
	x.n = 0
	x.key, err = gcmutil.Prepare(key)
	return err
}

func (x *noise) seal(b []byte) []byte {
	out := x.key.Seal(nil, nonce(x.n), b, x.hash)
	x.n++
	x.mixHash(out)
	return out
}

func (x *noise) open(b []byte) ([]byte, error) {
	out, err := x.key.Open(nil, nonce(x.n), b, x.hash)
	x.n++
	if err == nil {
		x.mixHash(b)
	}
	return out, err
}

func nonce(count uint32) []byte {
	b := make([]byte, 12)
	b[8], b[9], b[10], b[11] = byte(count>>24), byte(count>>16), byte(count>>8), byte(count)
	return b
}

// handshake proves the server to the client, learns who the client is and agrees on keys.
func (c *conn) handshake(ctx context.Context) error {
	header, err := c.bytes(ctx, 4)
	if err != nil {
		return err
	}
	x := &noise{hash: []byte(socket.NoiseStartPattern), chain: []byte(socket.NoiseStartPattern)}
	if x.key, err = gcmutil.Prepare(x.hash); err != nil {
		return err
	}
	x.mixHash(header)
	var hello waWa6.HandshakeMessage
	if err := c.message(ctx, &hello); err != nil {
		return err
	}
	theirs := hello.GetClientHello().GetEphemeral()
	ours := keys.NewKeyPair()
	if err := c.serverHello(ctx, x, ours, theirs); err != nil {
		return err
	}
	var finish waWa6.HandshakeMessage
	if err := c.message(ctx, &finish); err != nil {
		return err
	}
	static, err := x.open(finish.GetClientFinish().GetStatic())
	if err != nil || len(static) != 32 {
		return fmt.Errorf("client's key: %w", err)
	}
	if err := x.mixKey(ours.Priv[:], static); err != nil {
		return err
	}
	payload, err := x.open(finish.GetClientFinish().GetPayload())
	if err != nil {
		return err
	}
	c.noise = [32]byte(static)
	if err := proto.Unmarshal(payload, &c.payload); err != nil {
		return err
	}
	read, write := x.split(nil) // the client's writing key is our reading key
	if c.readKey, err = gcmutil.Prepare(read); err != nil {
		return err
	}
	c.writeKey, err = gcmutil.Prepare(write)
	return err
}

// serverHello sends the server's part of the handshake.
func (c *conn) serverHello(ctx context.Context, x *noise, ours *keys.KeyPair, theirs []byte) error {
	x.mixHash(theirs)
	x.mixHash(ours.Pub[:])
	if err := x.mixKey(ours.Priv[:], theirs); err != nil {
		return err
	}
	static := x.seal(c.s.static.Pub[:])
	if err := x.mixKey(c.s.static.Priv[:], theirs); err != nil {
		return err
	}
	out, err := proto.Marshal(&waWa6.HandshakeMessage{
		ServerHello: &waWa6.HandshakeMessage_ServerHello{
			Ephemeral: ours.Pub[:], Static: static, Payload: x.seal(c.s.cert),
		},
	})
	if err != nil {
		return err
	}
	return c.writeFrame(ctx, out)
}

// message reads one frame of the handshake.
func (c *conn) message(ctx context.Context, m proto.Message) error {
	f, err := c.frame(ctx)
	if err != nil {
		return err
	}
	return proto.Unmarshal(f, m)
}

// bytes reads n bytes of the stream that the websocket's messages make up.
func (c *conn) bytes(ctx context.Context, n int) ([]byte, error) {
	for len(c.in) < n {
		_, b, err := c.ws.Read(ctx)
		if err != nil {
			return nil, err
		}
		c.in = append(c.in, b...)
	}
	out := c.in[:n:n]
	c.in = c.in[n:]
	return out, nil
}

// frame reads one frame: three bytes of length and as many bytes.
func (c *conn) frame(ctx context.Context) ([]byte, error) {
	h, err := c.bytes(ctx, 3)
	if err != nil {
		return nil, err
	}
	return c.bytes(ctx, int(h[0])<<16|int(h[1])<<8|int(h[2]))
}

func (c *conn) writeFrame(ctx context.Context, b []byte) error {
	head := []byte{byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b))}
	return c.ws.Write(ctx, websocket.MessageBinary, append(head, b...))
}
