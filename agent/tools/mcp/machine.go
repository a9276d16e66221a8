package mcp

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// assertionTime is how long a signed assertion is valid.
const assertionTime = 5 * time.Minute

// refresh replaces the expired token by a new one and stores it. The caller holds the lock.
func (l *login) refresh(ctx context.Context) error {
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, l.http)
	client, params := l.grant.Client, url.Values{"grant_type": {"refresh_token"},
		"refresh_token": {l.grant.Token.RefreshToken}}
	if l.grant.Resource != "" {
		params.Set("resource", l.grant.Resource)
	}
	// Only this type of the library sends further parameters, and it allows another grant type. The
	// new token has the same scopes, as none are given.
	fresh, err := (&clientcredentials.Config{ClientID: client.ClientID,
		ClientSecret: client.ClientSecret, TokenURL: client.Endpoint.TokenURL,
		AuthStyle: client.Endpoint.AuthStyle, EndpointParams: params}).Token(ctx)
	if err != nil {
		if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.ErrorCode == "invalid_grant" {
			l.grant.Token = nil // nobody accepts it any more
			err = errors.Join(err, l.save())
		}
		return err
	}
	l.grant.Token = fresh
	if l.asked != nil && l.asked.status == http.StatusUnauthorized {
		l.asked = nil // a login is no longer needed
	}
	return l.save()
}

// refusedGrant reports whether err, an error of refresh, is the decision of the authorization
// server. Otherwise that server is out of order, and the next attempt may succeed.
func refusedGrant(err error) bool {
	e, ok := errors.AsType[*oauth2.RetrieveError](err)
	return ok && e.Response.StatusCode < 500 && e.Response.StatusCode != http.StatusTooManyRequests
}

// machineToken gets a token without a person, for a refused request. The scopes are those that the
// server has asked for, or else all that it supports.
func (l *login) machineToken(ctx context.Context, why *authChallenge) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	resource, issuer, err := l.discover(ctx, why)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, l.http)
	scopes := strings.Fields(why.param("scope"))
	if len(scopes) == 0 {
		scopes = resource.ScopesSupported
	}
	// If the metadata do not say how to send the secret, the library finds out.
	style := oauth2.AuthStyleAutoDetect
	switch methods := issuer.TokenEndpointAuthMethodsSupported; {
	case slices.Contains(methods, "client_secret_basic"):
		style = oauth2.AuthStyleInHeader
	case slices.Contains(methods, "client_secret_post"):
		style = oauth2.AuthStyleInParams
	}
	if l.OAuth.Grant == CrossApp {
		return l.crossAppToken(ctx, resource, issuer, style, scopes)
	}
	c := clientcredentials.Config{ClientID: l.OAuth.ClientID, ClientSecret: l.OAuth.ClientSecret,
		TokenURL: issuer.TokenEndpoint, Scopes: scopes, AuthStyle: style,
		EndpointParams: url.Values{"resource": {resource.Resource}}}
	if l.OAuth.PrivateKey != "" {
		signed, err := assertion(l.OAuth, issuer.Issuer)
		if err != nil {
			return nil, err
		}
		c.ClientSecret, c.AuthStyle = "", oauth2.AuthStyleInParams
		c.EndpointParams.Set("client_assertion", signed)
		c.EndpointParams.Set("client_assertion_type",
			"urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
	}
	return c.Token(ctx)
}

// isDocument reports whether ClientID is the URL of a metadata document.
func (o OAuth) isDocument() bool {
	return strings.HasPrefix(o.ClientID, "https://") && o.ClientSecret == ""
}

// registration describes the gateway for a registration with the authorization server, which would
// otherwise assume defaults. Many servers have other scopes than these, or accept no client that
// proves itself in the way that is the default.
func (l *login) registration(
	ctx context.Context, why *authChallenge,
) *oauthex.ClientRegistrationMetadata {
	me := &oauthex.ClientRegistrationMetadata{ClientName: "gateway",
		RedirectURIs: []string{cmp.Or(l.OAuth.Redirect, DefaultRedirect)},
		GrantTypes:   []string{"authorization_code", "refresh_token"}}
	if l.OAuth.ClientID != "" && !l.OAuth.isDocument() {
		return me // it is registered
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	resource, issuer, err := l.discover(ctx, why)
	if err != nil {
		return me // the login itself finds out why
	}
	for _, method := range []string{"none", "client_secret_post", "client_secret_basic"} {
		if slices.Contains(issuer.TokenEndpointAuthMethodsSupported, method) {
			me.TokenEndpointAuthMethod = method
			break
		}
	}
	scopes := strings.Fields(why.param("scope"))
	if len(scopes) == 0 {
		scopes = resource.ScopesSupported
	}
	l.locked(func() { scopes = l.grant.scopes(scopes) })
	if len(scopes) > 0 && slices.Contains(issuer.ScopesSupported, offlineAccess) {
		scopes = union(scopes, []string{offlineAccess}) // the library asks for it, too
	}
	me.Scope = strings.Join(scopes, " ")
	return me
}

// union returns the elements of a and b without duplicates.
func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, v := range b {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// offlineAccess is the scope that permits renewals.
const offlineAccess = "offline_access"

// discover loads the metadata of the server and of its authorization server.
func (l *login) discover(ctx context.Context, why *authChallenge) (
	*oauthex.ProtectedResourceMetadata, *oauthex.AuthServerMeta, error,
) {
	u, err := url.Parse(l.URL)
	if err != nil {
		return nil, nil, errors.New("its URL is not valid")
	}
	const known = "/.well-known/oauth-protected-resource"
	root := u.Scheme + "://" + u.Host
	// The refusal may say where the metadata are. Otherwise there are two usual places.
	for _, at := range [][2]string{{why.param("resource_metadata"), l.URL},
		{root + known + u.Path, l.URL}, {root + known, root}} {
		if at[0] == "" {
			continue
		}
		resource, err := oauthex.GetProtectedResourceMetadata(ctx, at[0], at[1], l.http)
		if err != nil || resource == nil || len(resource.AuthorizationServers) == 0 {
			continue
		}
		issuer, err := auth.GetAuthServerMetadata(ctx, resource.AuthorizationServers[0], l.http)
		if err == nil && issuer == nil {
			err = errors.New("its authorization server has no metadata")
		}
		return resource, issuer, err
	}
	// Up to version 2025-03-26, servers are their own authorization servers.
	issuer, err := auth.GetAuthServerMetadata(ctx, root, l.http)
	if err != nil || issuer == nil {
		return nil, nil, errors.New("it does not name its authorization server")
	}
	return &oauthex.ProtectedResourceMetadata{Resource: l.URL}, issuer, nil
}

// assertion returns a JWT that the client signs with its key to authenticate.
func assertion(o OAuth, audience string) (string, error) {
	block, _ := pem.Decode([]byte(o.PrivateKey))
	if block == nil {
		return "", errors.New("its private key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", errors.New("its private key is not PKCS 8")
	}
	var method jwt.SigningMethod
	switch key.(type) {
	case *ecdsa.PrivateKey:
		method = jwt.SigningMethodES256
	case *rsa.PrivateKey:
		method = jwt.SigningMethodRS256
	default:
		return "", errors.New("its private key is neither one of P-256 nor of RSA")
	}
	now := time.Now()
	return jwt.NewWithClaims(method, jwt.MapClaims{"iss": o.ClientID, "sub": o.ClientID,
		"aud": audience, "jti": rand.Text(), "iat": now.Unix(),
		"exp": now.Add(assertionTime).Unix()}).SignedString(key)
}

// crossAppToken exchanges the identity token of an enterprise for a token of the server. The
// identity provider gives an assertion for the server's authorization server, which gives the token
// for it.
func (l *login) crossAppToken(
	ctx context.Context, resource *oauthex.ProtectedResourceMetadata, issuer *oauthex.AuthServerMeta,
	style oauth2.AuthStyle, scopes []string,
) (*oauth2.Token, error) {
	f, err := os.Open(l.OAuth.IdentityFile)
	if err != nil {
		return nil, fmt.Errorf("its identity token: %w", err)
	}
	defer f.Close()
	identity, err := io.ReadAll(io.LimitReader(f, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("its identity token: %w", err)
	}
	word, err := oauthex.ExchangeToken(ctx, l.OAuth.IdentityURL, &oauthex.TokenExchangeRequest{
		RequestedTokenType: oauthex.TokenTypeIDJAG, Audience: issuer.Issuer,
		Resource: resource.Resource, Scope: scopes,
		SubjectToken:     strings.TrimSpace(string(identity)),
		SubjectTokenType: oauthex.TokenTypeIDToken,
	}, &oauthex.ClientCredentials{ClientID: l.OAuth.IdentityClientID}, l.http)
	if err != nil {
		return nil, err
	}
	c := &oauth2.Config{ClientID: l.OAuth.ClientID, ClientSecret: l.OAuth.ClientSecret,
		Endpoint: oauth2.Endpoint{TokenURL: issuer.TokenEndpoint, AuthStyle: style}}
	return c.Exchange(ctx, "",
		oauth2.SetAuthURLParam("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
		oauth2.SetAuthURLParam("assertion", word.AccessToken))
}
