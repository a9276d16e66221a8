package app

import (
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"gateway/agent/extract"
	"gateway/agent/guard"
	"gateway/agent/tool"
	"gateway/agent/tools/web"
	"gateway/cmd/gateway/internal/config"
)

// newGuard returns the SSRF guard for addresses from others.
func newGuard(cfg *config.Config) *guard.Guard {
	o := guardOptions(cfg)
	return guard.New(&o)
}

// guardOptions returns the networks and ports that the configuration allows. It was validated.
func guardOptions(cfg *config.Config) (o guard.Options) {
	for _, s := range cfg.Web.AllowNetworks {
		if p, err := netip.ParsePrefix(s); err == nil {
			o.Allow = append(o.Allow, p)
		}
	}
	for _, s := range cfg.Web.Ports {
		if n, err := strconv.Atoi(s); err == nil {
			o.Ports = append(o.Ports, n)
		}
	}
	return o
}

// newServerGuard returns the SSRF guard for an MCP server. The operator has named the server's
// host, so it may be localhost or a private address, at its port only. Each server has its own
// guard, because it could redirect to a host that is allowed for another one.
func newServerGuard(cfg *config.Config, s config.Server) *guard.Guard {
	o := guardOptions(cfg)
	for _, host := range s.LoginHosts {
		allowHost(&o, "http://"+host)
	}
	if s.URL != "" {
		allowHost(&o, s.URL)
	}
	return guard.New(&o)
}

// newPictureGuard returns the SSRF guard for downloads of generated pictures. The operator has
// named the provider's host.
func newPictureGuard(cfg *config.Config) *guard.Guard {
	o := guardOptions(cfg)
	allowHost(&o, cfg.Media.Images.BaseURL)
	return guard.New(&o)
}

// allowHost allows the port of an address, and its host if that is an IP address or localhost.
func allowHost(o *guard.Options, address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if n, err := strconv.Atoi(u.Port()); err == nil {
		o.Ports = append(o.Ports, n)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		o.Allow = append(o.Allow, netip.PrefixFrom(a, a.BitLen()))
	}
	if u.Hostname() == "localhost" {
		o.Allow = append(o.Allow, netip.MustParsePrefix("127.0.0.1/32"),
			netip.MustParsePrefix("::1/128"))
	}
}

// webTools returns the tools that use the internet.
func webTools(cfg *config.Config, g *guard.Guard, x *extract.Extractor, log *slog.Logger) (
	[]tool.Tool, error,
) {
	w := cfg.Web
	o := web.Options{Extract: x, Guard: g, Logger: log}
	if w.Search != "off" {
		o.Search = web.SearchOptions{
			Provider: w.Search, Key: w.SearchKey.Reveal(), BaseURL: w.SearchURL}
	}
	tools, err := web.Tools(o)
	if w.Search == "off" {
		tools = slices.DeleteFunc(tools, func(t tool.Tool) bool { return t.Name == "web_search" })
	}
	return tools, err
}
