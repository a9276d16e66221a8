package importer

import "testing"

// Other programs have written odd values into histories of nanobot, and models have written times
// that do not exist. A crash may have left lines that are no JSON. All other entries are imported.
func TestDamagedHistory(t *testing.T) {
	d := newFixture(t)
	d.write(
		"config.json", `{}`,
		"workspace/memory/HISTORY.md", "[2026-02-16 08:00] Anna moved to Rome.\n\n"+
			"[2026-02-30] was a slip.\n\n[2026-02-17 09:30] It rained.\n",
		"workspace/memory/history.jsonl",
		`{"cursor":1,"timestamp":"2026-02-18 09:00","content":"Anna bought a bike."}`+"\n"+
			`{"cursor":2,"timestamp":"2026-02-18 09:3`+"\n"+
			`{"cursor":"abc","timestamp":"2026-02-18 10:00","content":"It was stolen."}`+"\n"+
			`{"cursor":4,"timestamp":"yesterday","content":"It was found."}`+"\n"+
			`{"cursor":5,"timestamp":"2026-02-18 11:00","content":"She sold it."}`+"\n",
		"workspace/memory/.dream_cursor", "4",
	)
	d.want(Nanobot,
		"new history workspace/memory/HISTORY.md > person-1/history.jsonl: 2 entries of 2",
		"new history workspace/memory/history.jsonl > person-1/history.jsonl: 4 entries of 4, "+
			"1 damaged lines left out")
	d.wantHistory(5, "08:00  [2026-02-16 08:00] Anna moved to Rome.\n\n[2026-02-30] was a slip.",
		"09:30  [2026-02-17 09:30] It rained.", "09:00  Anna bought a bike.",
		"10:00  It was stolen.", "00:00  It was found.", "11:00  She sold it.")
}
