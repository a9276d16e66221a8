package skills

import (
	"embed"
	"fmt"
	"path"
)

// builtins are the skills that are part of the program.
//
//go:embed builtin
var builtins embed.FS

// readBuiltin reads the built-in skills. The tests make sure that all of them are valid.
func readBuiltin() []*cachedSkill {
	entries, err := builtins.ReadDir("builtin")
	if err != nil {
		panic(fmt.Sprintf("skills: %v", err))
	}
	var skills []*cachedSkill
	for _, e := range entries {
		b := &cachedSkill{skill: Skill{Name: e.Name(), Folder: e.Name(), file: fileNames[0]}}
		data, err := builtins.ReadFile(path.Join("builtin", e.Name(), fileNames[0]))
		if err != nil {
			b.skill.Problem = reason(err)
		} else {
			b.fill(parse(data))
		}
		skills = append(skills, b)
	}
	return skills
}
