package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/ops"
)

// openWorkspace is the rule for the workspace. Others may read its files but not write them.
const openWorkspace = "GS028"

const (
	readable = "Other users of this machine can read it, and with it conversations or tokens."
	closeIt  = "Remove the rights of other users: gateway security --fix, or chmod go-rwx."
)

// Rules returns all rules in the order of their ids. A new rule gets the next number. The number of
// a rule that was removed stays unused.
func Rules() []Rule {
	list := slices.Concat(fileRules(), peopleRules(), commandRules(), networkRules(), placeRules())
	slices.SortFunc(list, func(a, b Rule) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// fileRules returns the rules about who can open the gateway's files.
func fileRules() []Rule {
	return []Rule{
		{"GS001", High, "The data directory is open", readable, closeIt, true,
			func(a *auditor) { a.checkFolder(a.cfg.Gateway.Home, 0o077) }},
		{"GS002", High, "The database is open", readable, closeIt, true,
			func(a *auditor) {
				db := a.cfg.Store.Path()
				a.checkFiles(db, db+"-wal", db+"-shm")
			}},
		{"GS003", High, "The configuration is open", readable, closeIt, true,
			func(a *auditor) {
				info, err := os.Stat(a.File)
				// Whoever can change the configuration decides which programs run, so that counts even
				// without secrets in it.
				if err == nil && (info.Mode().Perm()&0o022 != 0 || a.literal()) {
					a.checkFiles(a.File)
				}
			}},
		{"GS004", High, "http.json is open", "It contains the operator's token.", closeIt, true,
			func(a *auditor) { a.checkFiles(filepath.Join(a.cfg.Gateway.Home, "http.json")) }},
		{"GS005", Medium, "The log is open",
			"Other users of this machine can read who writes when.", closeIt, true,
			func(a *auditor) { a.checkFiles(a.cfg.Log.File) }},
		{"GS006", High, "The keys of WhatsApp are open",
			"Anybody who has them can read and write as that account.", closeIt, true,
			func(a *auditor) {
				for _, name := range a.accounts() {
					if a.cfg.Channels[name].Type == "whatsapp" && a.WhatsApp != nil {
						// SQLite keeps the newest writes in the second file.
						a.checkFiles(a.WhatsApp(name), a.WhatsApp(name)+"-wal")
					}
				}
			}},
		{"GS007", High, "A backup is open", readable, closeIt, true,
			func(a *auditor) { a.checkFiles(a.backups()...) }},
		{"GS008", Medium, "A secret is in the configuration file",
			"Everybody who gets a copy of the file gets the secret.",
			`Put it into the environment or a file of its own: "env:NAME" or "file:PATH".`,
			false, plainSecrets},
		{"GS009", High, "A file with a secret is open", readable, closeIt, true,
			func(a *auditor) { a.checkFiles(a.secretFiles()...) }},
	}
}

func plainSecrets(a *auditor) {
	for _, s := range a.written {
		a.addIf(s.Literal(), s.Key+" in "+a.File)
	}
}

// checkFolder adds a problem if others have one of the rights in a folder.
func (a *auditor) checkFolder(dir string, rights os.FileMode) {
	info, err := os.Stat(dir)
	if err == nil && modes && info.Mode().Perm()&rights != 0 {
		a.addAs(a.rule.Severity, fmt.Sprintf("%s has mode %04o", dir, info.Mode().Perm()), dir)
	}
}

// accounts returns the enabled platform accounts.
func (a *auditor) accounts() (list []string) {
	for name, c := range config.Sorted(a.cfg.Channels) {
		if c.Enabled && c.Type != "terminal" {
			list = append(list, name)
		}
	}
	return list
}

// checkAccounts adds a problem for each account for which test is true.
func (a *auditor) checkAccounts(test func(config.Channel) bool, text string) {
	for _, name := range a.accounts() {
		a.addIf(test(a.cfg.Channels[name]), "[channels."+name+"] "+text)
	}
}

// mayRun reports whether a role may run commands without an approval. tool returns the role's
// setting in the configuration of a tool. If there is no setting and commands run in a sandbox,
// mayRun returns otherwise.
func (a *auditor) mayRun(tool func(config.Tool) string, otherwise bool) bool {
	if a.cfg.Exec.Sandbox == "off" {
		return false
	}
	if decision := tool(a.cfg.Tools["exec"]); decision != "" && decision != config.Inherit {
		return decision == "allow"
	}
	return otherwise && a.cfg.Exec.Sandbox != "none" // "none": commands need approval
}

// free returns those of the given accounts on which no policy restricts the use of a tool.
func (a *auditor) free(accounts []string, tool string) []string {
	return slices.DeleteFunc(slices.Clone(accounts), func(account string) bool {
		for _, p := range a.cfg.Policies {
			if p.Restricts(account, tool) {
				return true
			}
		}
		return false
	})
}

// guestsMay reports whether guests of any account may use a tool that the rules allow them.
func (a *auditor) guestsMay(tool string) bool {
	accounts := a.accounts()
	// Without accounts no policy restricts anything, so the setting counts.
	return len(accounts) == 0 || len(a.free(accounts, tool)) > 0
}

// isOpen reports whether everybody may write to an account.
func isOpen(c config.Channel) bool { return c.Access == "open" }

// peopleRules returns the rules about who may write to the bot, and what they may do.
func peopleRules() []Rule {
	return []Rule{
		{"GS010", Medium, "Everybody may write to the bot",
			"Strangers have the role user: they use its tools, and your model's budget.",
			`Set access = "pairing", or list people: access = "allow".`, false,
			func(a *auditor) { a.checkAccounts(isOpen, `access = "open"`) }},
		{"GS011", High, "Everybody may run commands",
			"Strangers may write to the bot, and the role user runs commands unasked.",
			`Set access = "pairing", user = "deny" in [tools.exec], or deny = ["exec"] in a policy ` +
				"for the account.", false,
			func(a *auditor) {
				may := a.mayRun(func(t config.Tool) string { return t.User }, true)
				for _, name := range a.free(a.accounts(), "exec") {
					a.addIf(may && isOpen(a.cfg.Channels[name]), "[channels."+name+"] "+
						`access = "open", and [tools.exec] lets users`)
				}
			}},
		{"GS012", Medium, "The bot answers in every group",
			"Anybody can add it to a group, where then everybody can use it.",
			"List the groups: groups = [...].", false,
			func(a *auditor) {
				a.checkAccounts(func(c config.Channel) bool { return isOpen(c) && len(c.Groups) == 0 },
					`access = "open", and no groups are listed`)
			}},
		{"GS013", Low, "Nobody is the owner",
			"The first person who is approved becomes the owner. Until then nobody is told about failures.",
			"Set owners = [your id] in [channels.NAME], or use gateway people approve.",
			false, func(a *auditor) {
				a.addIf(!a.owned && len(a.accounts()) > 0,
					"neither the configuration nor gateway people list names one")
			}},
	}
}

// commandRules returns the rules about what tools and commands can do.
func commandRules() []Rule {
	return []Rule{
		{"GS014", High, "Commands run without a sandbox",
			"A command can do all that the gateway can: read its tokens, change its files.",
			`Set [exec] sandbox = "auto", or "off".`, false,
			func(a *auditor) { a.addIf(a.cfg.Exec.Sandbox == "none", `[exec] sandbox = "none"`) }},
		{"GS015", Medium, "Commands reach the network",
			"They can send everything that they can read, for example because a page told the model to.",
			"Set [exec] network = false.", false,
			func(a *auditor) {
				a.addIf(a.cfg.Exec.Network && a.cfg.Exec.Sandbox != "off", "[exec] network = true")
			}},
		{"GS016", Medium, "Commands see a secret", "The model and its tools can read the variable.",
			"Remove it from [exec] env, or use a key with few rights.", false,
			func(a *auditor) {
				for _, name := range a.cfg.Exec.Env {
					a.addIf(config.NamesSecret(name), "[exec] env has "+name)
				}
			}},
		{"GS020", Medium, "Guests may use a tool",
			"Guests are people in groups whom nobody has approved.",
			`Set guest = "deny" in [tools.NAME].`, false,
			func(a *auditor) {
				for name, t := range config.Sorted(a.cfg.Tools) {
					a.addIf(name != "exec" && t.Guest == "allow" && a.guestsMay(name),
						"[tools."+name+`] guest = "allow"`)
				}
			}},
		{"GS021", High, "Guests may run commands",
			"Guests are people in groups whom nobody has approved.",
			`Set guest = "deny" in [tools.exec].`, false,
			func(a *auditor) {
				a.addIf(a.guestsMay("exec") &&
					a.mayRun(func(t config.Tool) string { return t.Guest }, false),
					`[tools.exec] guest = "allow"`)
			}},
		{"GS022", Medium, "An MCP server runs without a sandbox",
			"It can do all that the gateway can.", "Set sandbox = true in [mcp.NAME].", false,
			func(a *auditor) {
				a.checkServers(func(s config.Server) bool {
					return len(s.Command) > 0 && !s.Sandbox
				}, "sandbox = false")
			}},
		{"GS025", Medium, "People may approve their own requests",
			"A question before a dangerous command protects nobody then.",
			`Set [approvals] approver = "admin", or "owner".`, false,
			func(a *auditor) {
				a.addIf(a.cfg.Approvals.Approver == "user", `[approvals] approver = "user"`)
			}},
		{"GS029", Medium, "A skill is not what you installed",
			"The agent follows it like an instruction. It was changed, or came by another way.",
			"Read it: gateway skills show NAME. Then install it anew, or remove it.", false,
			func(a *auditor) {
				for folder, state := range config.Sorted(a.skills) {
					a.add("skill " + folder + ": " + state)
				}
			}},
	}
}

// checkServers adds a problem for each enabled MCP server for which test is true.
func (a *auditor) checkServers(test func(config.Server) bool, text string) {
	for name, s := range config.Sorted(a.cfg.MCP) {
		a.addIf(s.Enabled && test(s), "[mcp."+name+"] "+text)
	}
}

// networkRules returns the rules about connections from and to the gateway.
func networkRules() []Rule {
	return []Rule{
		{"GS017", High, "Pages may come from too much of the private network",
			"A page or a message can make the agent read what only this network can reach.",
			"Name single hosts in [web] allow_networks, such as 192.168.1.7/32.", false,
			wideNetworks},
		{"GS018", Medium, "Others reach the operator's server",
			"Only the token protects metrics, profiles and hooks.",
			"Set [http] listen to 127.0.0.1, and put a proxy with TLS before it.", false,
			func(a *auditor) {
				host, _, err := net.SplitHostPort(a.cfg.HTTP.Listen)
				a.addIf(err == nil && !ops.IsLoopback(host),
					`[http] listen = "`+a.cfg.HTTP.Listen+`"`)
			}},
		{"GS019", High, "A hook has more rights than a guest",
			"Anybody who has its secret, or can write text that the other program posts, has " +
				"these rights. A bearer token goes over the network with each request.",
			`Set role = "guest", or auth = "hmac", in [hooks.NAME].`, false, strongHooks},
		{"GS023", Medium, "A server is reached without TLS",
			"Others on the network can read and change the data, and read the key.",
			"Use an https address.", false, plainServers},
	}
}

// metadata is the address at which clouds give machines their secrets.
var metadata = netip.MustParseAddr("169.254.169.254")

// wideNetworks finds allowed networks with more than 65,536 addresses, and those with the metadata
// address of clouds.
func wideNetworks(a *auditor) {
	const most = 16 // bits of the host part
	for _, text := range a.cfg.Web.AllowNetworks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue // the configuration was validated
		}
		a.addIf(p.Addr().BitLen()-p.Bits() > most || p.Contains(metadata),
			"[web] allow_networks has "+text)
	}
}

// strongHooks finds hooks with more rights than a guest. The severity is high only for an admin or
// an owner whose secret goes over the network.
func strongHooks(a *auditor) {
	for name, h := range config.Sorted(a.cfg.Hooks) {
		if !h.Enabled || h.Role == "guest" {
			continue
		}
		severity := High
		if h.Role == "user" || h.Auth == "hmac" {
			severity = Medium
		}
		a.addAs(severity, fmt.Sprintf("[hooks.%s] role = %q, auth = %q", name, h.Role, h.Auth), "")
	}
}

// plainServers finds servers that get data or credentials without TLS. A server on this machine
// needs none.
func plainServers(a *auditor) {
	plain := func(address string) bool {
		u, err := url.Parse(address)
		return err == nil && u.Scheme == "http" && !ops.IsLoopback(u.Hostname())
	}
	for name, m := range config.Sorted(a.cfg.Models) {
		// A model without credentials is usually a server on the local network.
		a.addIf((len(m.AllKeys()) > 0 || len(m.Headers) > 0) && plain(m.BaseURL),
			"[models."+name+"] base_url begins with http:")
	}
	a.checkServers(func(s config.Server) bool { return plain(s.URL) }, "its url begins with http:")
	a.checkAccounts(func(c config.Channel) bool { return plain(c.APIURL) },
		"its api_url begins with http:")
}

// placeRules returns the rules about the surroundings of the gateway: its folders, its user, its
// budget and the ids in its configuration.
func placeRules() []Rule {
	return []Rule{
		{"GS024", Low, "The agent may write outside its workspace",
			"Files that it writes there, by mistake or because a page told it to, have no versions.",
			"Set write = false in [roots.NAME], unless it must.", false,
			func(a *auditor) {
				for name, r := range config.Sorted(a.cfg.Roots) {
					a.addIf(r.Write, "[roots."+name+"] "+r.Path)
				}
			}},
		{"GS026", Medium, "The gateway runs as root",
			"A mistake in it, or in a program that it runs, affects the whole machine.",
			"Run it as a user of its own: see deploy/gateway.service.", false,
			func(a *auditor) { a.addIf(a.Root, "this command runs as root, outside of a container") }},
		{"GS027", Low, "The workspace lies in a git checkout",
			"Files that the agent and people put there may be committed and pushed.",
			"Set [gateway] workspace to a folder outside of it.", false,
			func(a *auditor) {
				dir := a.checkout()
				a.addIf(dir != "", a.cfg.Gateway.Workspace+" lies in "+dir)
			}},
		{openWorkspace, High, "Others can write into the workspace",
			"The agent reads and runs the files that they write there.",
			"Remove that right: gateway security --fix, or chmod go-w.", true,
			func(a *auditor) { a.checkFolder(a.cfg.Gateway.Workspace, 0o022) }},
		{"GS030", Low, "Everybody may spend without a limit",
			"Strangers may write to the bot, and no budget limits the cost.",
			"Set day_tokens or day_dollars, or those of a person, in [budget].", false,
			func(a *auditor) {
				b := a.cfg.Budget
				if b.DayTokens+b.PersonTokens == 0 && b.DayDollars+b.PersonDollars == 0 {
					a.checkAccounts(isOpen, `access = "open", and [budget] has no limit`)
				}
			}},
		{"GS031", Medium, "A rule is about the earlier id of a group",
			"The rule holds as long as the gateway has stored that the platform gave the group a new " +
				"id. Another bot or a new data directory does not know it.",
			"Put the new id beside the earlier one, in groups and in policies.", false, movedGroups},
	}
}

// movedGroups adds a problem for each list that has only the earlier id of a group.
func movedGroups(a *auditor) {
	for _, m := range a.moves {
		add := func(where string, ids []string, prefix string) {
			a.addIf(slices.Contains(ids, prefix+m.Before) && !slices.Contains(ids, prefix+m.Chat),
				fmt.Sprintf("%s has %s%s, which is %[2]s%[4]s now", where, prefix, m.Before, m.Chat))
		}
		add("[channels."+m.Account+"] groups", a.cfg.Channels[m.Account].Groups, "")
		for name, p := range config.Sorted(a.cfg.Policies) {
			add("[policies."+name+"] chats", p.Chats, m.Account+"/")
		}
	}
}
