// Package skills finds, reads, checks and renders skills: folders with a SKILL.md, which tells the
// agent how to do something.
//
// A [Library] lists those that the owner keeps in the shared folder, those that are built in, and
// those that were found in conversations and belong to one memory scope; nobody else sees these.
// Skills that can't be read are listed with the reason. The text of a skill is foreign: names and
// descriptions are cleaned before they are shown, and [Pins] say whether a skill is still what was
// installed.
//
// A skill has at most 1,000 files and 64 MB, its SKILL.md at most 1 MB. The package owns
// skills/NAME below the shared folder and below a scope's memory, the folder that [Unpack] writes,
// and the file of [Pins]. It owns no tables.
package skills
