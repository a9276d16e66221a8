package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A longFact is a fact that the person of the long conversation tells once, long before asking
// for it.
type longFact struct {
	said  string // what the person writes
	key   string // key under which the model remembers it; "": it was only said
	value string
	pin   bool
	want  string // text that only this fact has
	query string // words with which it is looked up later
	asks  string // question for which it is useful, if it is remembered
}

// longFacts are the facts that the person asks for. The remembered facts come first.
var longFacts = []longFact{
	{said: "My sister Ilse can't eat walnuts, she got a bad rash last time. Keep that in mind.",
		key: "Ilse's allergy", value: "Ilse, the sister, must not eat walnuts", want: "walnuts",
		query: "which food makes sister Ilse ill",
		asks:  "I bake a cake for Ilse. What must I avoid?"},
	{said: "The network at the cabin is Birkenhof-5G, remember it for our holidays.",
		key: "cabin network", value: "at the cabin the network is Birkenhof-5G",
		want:  "Birkenhof-5G",
		query: "wireless name in the cabin", asks: "We are at the cabin now. How do I get online?"},
	{said: "I have a new dentist: Dr. Okonkwo in Lindenweg 14. Note that, please.",
		key: "dentist", value: "Dr. Okonkwo, Lindenweg 14", want: "Okonkwo",
		query: "who is the dentist, address",
		asks:  "I have a toothache. Whom do I call, which dentist?"},
	{said: "Remember that my passport runs out on 2029-03-17.",
		key: "passport", value: "the passport runs out on 2029-03-17", want: "2029-03-17",
		query: "expiry of my passport", asks: "Do I need a new passport before we fly to Japan?"},
	{said: "The heating here is a Vaillant VCW 246, and Kröger services it. Keep it for later.",
		key: "boiler model", value: "Vaillant VCW 246, serviced by Kröger", want: "VCW 246",
		query: "what boiler do we have", asks: "The boiler knocks at night. Which model is it?"},
	{said: "Always answer me without bullet points. That holds for good.",
		key: "style of answers", value: "answers without bullet points", pin: true,
		want: "without bullet points", query: "how shall answers look, which style",
		asks: "Sum up the week for me."},
	{said: "We call the rewrite of the shop Project Heron. Remember the name.",
		key: "name of the shop rewrite", value: "it is called Project Heron", want: "Project Heron",
		query: "code name for rewriting the shop",
		asks:  "How would you announce the shop rewrite?"},
	{said: "From now on we deploy the shop on Tuesdays before noon only, please remember.",
		key: "when to deploy", value: "deploy the shop on Tuesdays before noon only",
		want: "Tuesdays before noon", query: "allowed day to deploy",
		asks: "Can I deploy this tomorrow?"},
	{said: "Mira is in class 3b of the Erich Kästner school now. Note it.",
		key: "Mira's school", value: "Erich Kästner school, class 3b", want: "class 3b",
		query: "which school does Mira attend", asks: "Mira is ill. Write a line to her school."},
	{said: "For the record, keep it: my blood group is AB negative.",
		key: "blood group", value: "AB negative", want: "AB negative",
		query: "blood type, group", asks: "The clinic wants to know my blood group."},
	{said: "The frame number of my bike is WBK4471X, remember that in case it is stolen.",
		key: "frame number of the bike", value: "WBK4471X", want: "WBK4471X",
		query: "serial on the frame of the bicycle",
		asks:  "The bike is gone, the police want the frame!"},
	{said: "Remember my coffee: a flat white with oat milk and no sugar.",
		key: "usual coffee", value: "flat white with oat milk, no sugar", want: "oat milk",
		query: "what coffee does he drink", asks: "Tell the counter which coffee I take."},
	{said: "The winter tyres lie at Reifen Holm on shelf 22. Please keep that.",
		key: "winter tyres", value: "stored at Reifen Holm, shelf 22", want: "shelf 22",
		query: "where are the tyres for snow in winter",
		asks:  "It will snow. Where are the tyres?"},
	{said: "Our landlord is Mrs. Adeyemi, and she answers letters only. Remember it.",
		key: "landlord", value: "Mrs. Adeyemi, answers letters only", want: "Adeyemi",
		query: "landlord, how to reach", asks: "Complain to the landlord about the damp wall."},
	{said: "I run in size 44.5, note that for when there is a sale of shoes.",
		key: "size of running shoes", value: "44.5", want: "44.5",
		query: "shoe size for running", asks: "There is a sale of shoes. Which size do I take?"},
	{said: "Our wedding anniversary is on 9 October. Do remember it.",
		key: "wedding anniversary", value: "9 October", want: "9 October",
		query: "date of the wedding", asks: "When must I book a table for our anniversary?"},
	{said: "Pixel, the cat, goes to the vet Dr. Lund in Hafenstraße. Keep it.",
		key: "vet of Pixel the cat", value: "Dr. Lund, Hafenstraße", want: "Dr. Lund",
		query: "doctor for the cat", asks: "Pixel limps today. Where do I go?"},
	{said: "I have piano lessons on Thursdays at 18:30 with Vogt, remember.",
		key: "piano lessons", value: "on Thursdays at 18:30 with Vogt", want: "18:30",
		query: "time of the piano lesson",
		asks:  "Can I see Vera on Thursdays, or is there the piano?"},
	{said: "My tax number is 181/815/08155, for the office in the north. Note it down.",
		key: "tax number", value: "181/815/08155, office in the north", want: "181/815/08155",
		query: "number for the tax return", asks: "Fill in the form for my taxes."},
	{said: "The tomato Noire de Crimée did best this year. Remember it for spring.",
		key: "best tomato", value: "Noire de Crimée did best", want: "Noire de Crimée",
		query: "tomato variety that grew well", asks: "Which tomatoes shall I sow again?"},

	{said: "The bank agreed: the loan is 212,400 at 3.1 percent.", want: "212,400",
		query: "loan of the bank, amount and interest"},
	{said: "Uncle Bertil has sold his boat, the Svanen, to a man from Kalmar.", want: "Kalmar",
		query: "who bought uncle Bertil's boat"},
	{said: "The test failed because the clock of the host tulip was eleven minutes off.",
		want: "tulip", query: "cause of the failed test, host clock"},
	{said: "For Lena's farewell we have chosen the restaurant Zum Goldenen Hirsch.",
		want: "Goldenen Hirsch", query: "restaurant for the farewell of Lena"},
	{said: "The plumber wants 640 euros for the new pump.", want: "640 euros",
		query: "price of the plumber for a pump"},
	{said: "In Lisbon we lived in a guest house in Alfama with a lemon tree.", want: "Alfama",
		query: "where did they stay in Lisbon, house"},
	{said: "My knee has hurt since I fell on the stairs of Montmartre.", want: "Montmartre",
		query: "how the knee was hurt, stairs"},
	{said: "We decided against Kafka and took NATS, because of the memory it needs.", want: "NATS",
		query: "decision about Kafka and why"},
	{said: "Our book club reads The Leopard in March.", want: "The Leopard",
		query: "novel that the book club reads in March"},
	{said: "Grandfather's clock was mended by a man named Szymański in Gdynia.",
		want: "Szymański", query: "who repaired the clock of grandfather"},
	{said: "My old phone number ended with 7719, the new one ends with 3052.", want: "3052",
		query: "end of the new phone number"},
	{said: "The bread is good only if the dough rests for fourteen hours.", want: "fourteen hours",
		query: "how long does dough for bread rest"},
	{said: "Vera writes her thesis about lichens of the Harz.", want: "lichens",
		query: "subject of Vera's thesis"},
	{said: "The insurance won't pay for the broken window, file 88-4410-K.", want: "88-4410-K",
		query: "insurance refusal, window broken, reference"},
	{said: "At the marathon in Hamburg I needed 3:52:07.", want: "3:52:07",
		query: "his time at the Hamburg marathon"},
	{said: "The dog of the neighbours is called Caruso and barks at drones.", want: "Caruso",
		query: "name of the neighbours' dog"},
	{said: "We have painted the hall in a colour named Eisvogel.", want: "Eisvogel",
		query: "colour on the walls of the hall"},
	{said: "My boss wants page 12 of the report shortened, not the annex.", want: "page 12",
		query: "what does the boss want shortened in the report"},
	{said: "The train to Bergen leaves from platform 9 at 06:58.", want: "06:58",
		query: "departure of the Bergen train"},
	{said: "Nobody but Hanna may sign orders over five thousand.", want: "Hanna",
		query: "who is allowed to sign large orders"},
}

// longOther returns the n-th fact that is remembered but never asked for. The search must find
// the other facts among these.
func longOther(n int) longFact {
	people := []string{"Ilse", "Vera", "Mira", "Tom", "the boss", "Lena", "uncle Bertil", "Marek"}
	things := []string{"favourite tea", "birthday", "size of shoes", "car", "phone", "school",
		"doctor", "number of the flat"}
	values := []string{"rooibos", "in May", "38", "a grey estate", "an old one with keys",
		"by the river", "someone in the next town", "17, second floor"}
	who, i := people[n%len(people)], n/len(people)%len(things)
	key := things[i] + " of " + who
	return longFact{key: key, value: values[i],
		said: fmt.Sprintf("Remember the %s: %s.", key, values[i])}
}

// longWords are the topics of small talk. Many of the words also occur in the facts.
var longWords = []struct{ nouns, verbs, tails []string }{
	{[]string{"sister", "uncle", "neighbour", "grandfather", "daughter", "cat", "dog", "boss"},
		[]string{"called again", "was in a good mood", "wants to visit us", "told the old story",
			"slept badly", "has a new hobby"},
		[]string{"after dinner", "as always on Sundays", "and we laughed a lot", "in the hall"}},
	{[]string{"bread", "soup", "tomato", "cake", "coffee", "restaurant", "dough", "lemon tree"},
		[]string{"was better than I thought", "needs more salt", "tasted of the oven",
			"was rather small", "smelled wonderful", "cost too much"},
		[]string{"in the kitchen", "with olive oil", "for two people", "at the market"}},
	{[]string{"report", "test", "host", "shop", "deploy", "order", "office", "memory"},
		[]string{"kept us busy", "was red again", "took the whole morning", "is nearly done",
			"needs another look", "went through at last"},
		[]string{"before the meeting", "on the second try", "without any help", "as I said"}},
	{[]string{"train", "bike", "boat", "car", "tyres", "passport", "platform", "guest house"},
		[]string{"was late", "made a strange noise", "got wet", "is at the station",
			"was full of people", "looks new again"},
		[]string{"on the way home", "near the bridge", "in the rain", "between two hills"}},
	{[]string{"garden", "window", "pump", "boiler", "stairs", "clock", "wall", "insurance"},
		[]string{"gave us trouble", "could be prettier", "was the topic of the evening",
			"needs some paint", "stands in the sun", "costs money every year"},
		[]string{"since autumn", "behind the house", "as every year", "next to the door"}},
	{[]string{"marathon", "piano", "book club", "school", "thesis", "dentist", "phone", "knee"},
		[]string{"came up again", "is on my mind", "was fun this time", "has to wait",
			"made me tired", "is going well"},
		[]string{"these days", "in the evening", "although it is March", "with all of them"}},
}

// chat returns some sentences of small talk.
func (l *longScript) chat() string {
	pick := func(list []string) string { return list[l.rand.IntN(len(list))] }
	open := []string{"Well,", "You know,", "So,", "Today,", "By the way,", "Honestly,", "Hm,",
		"And"}
	ask := []string{"What do you think?", "How would you go about it?", "Is that usual?",
		"Any idea?", "Tell me something about it.", "What comes next?"}
	var b strings.Builder
	for range 1 + l.rand.IntN(4) {
		w := longWords[l.rand.IntN(len(longWords))]
		fmt.Fprintf(&b, "%s the %s %s %s, and the %s %s. ", pick(open), pick(w.nouns),
			pick(w.verbs), pick(w.tails), pick(w.nouns), pick(w.verbs))
	}
	return b.String() + pick(ask)
}

// answer returns the assistant's answer to small talk.
func (l *longScript) answer() string {
	parts := []string{"That sounds like a full day.", "It depends on how much time you have.",
		"I would begin with the smaller part and look at the rest tomorrow.",
		"Many people have the same trouble, and most of it passes by itself.",
		"You could write down what you want first, and then ask for two offers.",
		"If it goes on like that for a week, somebody should have a look at it.",
		"There are three ways: wait, do it yourself, or let somebody do it who has the tools.",
		"Done.", "Good.", "I see no reason against it.",
		"A walk would do no harm in any case, and the weather allows it."}
	var list []string
	for range 1 + l.rand.IntN(6) {
		list = append(list, parts[l.rand.IntN(len(parts))])
	}
	return strings.Join(list, " ")
}

// A longScript determines what the person writes and what the model does. It is the same in each
// run.
type longScript struct {
	rand    *rand.Rand
	turns   int
	planted map[int]longFact // by turn
	others  int
}

func newLongScript(turns int) *longScript {
	l := &longScript{rand: rand.New(rand.NewPCG(1, 5)), turns: turns,
		planted: make(map[int]longFact)}
	// Facts are told in the first 85 % of the turns, so that even the newest have left the prompt
	// when the person asks for them.
	step := float64(turns) * 0.85 / float64(len(longFacts))
	for i := range longFacts {
		order := i*17%len(longFacts) + 1 // remembered facts alternate with facts that were only said
		l.planted[int(float64(order)*step)] = longFacts[i]
	}
	return l
}

// longFiles are the files in the workspace.
var longFiles = map[string]string{
	"plan.md":    "# Plan\n\n" + strings.Repeat("- a line of the plan, with what is to do\n", 20),
	"prices.csv": "what,price\n" + strings.Repeat("a board of oak,17.40\nscrews,3.20\n", 15),
	"letter.txt": strings.Repeat("Dear Sir or Madam, the matter is as before and goes on.\n", 12),
}

// next returns the turn with the given number, from 1.
func (l *longScript) next(n int) longTurn {
	t := longTurn{n: n, text: l.chat(), say: l.answer()}
	fact, planted := l.planted[n]
	switch tool := n % 25; { // each 25 turns have the same rounds
	case planted && fact.key == "":
		t.text = fact.said
	case planted, n%17 == 3 && l.others < 60:
		if !planted {
			fact = longOther(l.others)
			l.others++
		}
		t.text, t.say = fact.said, "I have noted that."
		args := map[string]any{"key": fact.key, "value": fact.value}
		if fact.pin {
			args["pinned"] = true
		}
		t.use("remember", args)
	case tool == 5, tool == 18:
		t.use("time", map[string]any{})
	case tool == 8:
		t.use("read_file", map[string]any{"path": "plan.md"})
	case tool == 14:
		t.use("list_dir", map[string]any{})
		t.use("read_file", map[string]any{"path": "prices.csv"})
	case tool == 22:
		t.use("grep", map[string]any{"pattern": "matter", "output_mode": "content"})
		t.use("write_file", map[string]any{"path": "note.txt", "content": t.say})
	}
	return t
}
