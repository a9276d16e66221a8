// Package skills finds, reads, checks and renders skills: folders with a SKILL.md, which
// tells the agent how to do something.
//
// A [Library] lists the skills that the owner keeps in the shared folder, the built-in
// ones, and those that were found in conversations. The latter belong to one memory scope
// and are visible only there. A skill that can't be read is listed with the reason. The
// text of a skill is foreign text: names and descriptions are cleaned before they are
// shown, and [Pins] reports whether a skill is still the one that was installed.
//
// A skill has at most 1,000 files and 64 MB, its SKILL.md at most 1 MB. The package owns
// skills/NAME below the shared folder and below a scope's memory, the folder that [Unpack]
// writes, and the file of [Pins]. It owns no tables.
package skills
