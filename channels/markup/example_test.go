package markup_test

import (
	"fmt"

	"gateway/channels/markup"
)

func ExampleTelegram() {
	fmt.Println(markup.Telegram("**Tea** at `4 pm` & _cake_"))
	// Output: <b>Tea</b> at <code>4 pm</code> &amp; <i>cake</i>
}

// If a block of code is cut, it is closed in one piece and opened again in the next.
func ExampleSplitFirst() {
	const text = "```sh\ngo build\ngo test\n```"
	for _, piece := range markup.SplitFirst(text, 20, len(text), markup.DiscordLen) {
		fmt.Printf("%q\n", piece)
	}
	// Output:
	// "```sh\ngo build\n```"
	// "```sh\ngo test\n```"
}
