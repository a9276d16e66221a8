package turn

import (
	"errors"

	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/policy"
)

// Texts for people: one or two plain sentences that say what happened and what to do about it.
const (
	SayPanic = "Sorry, something went wrong on my side. Please try again. The person who runs me " +
		"finds the details in the log."
	SayBroken = "I could not read or write the data of this conversation, so I have stopped. " +
		"Please try again; if that does not help, the person who runs me finds the reason in " +
		"the log."
	SayBlank   = "I have no answer to that, sorry. Please try to put it another way."
	SayTimeout = "That took too long, so I stopped. Please ask for less at once, or try again."
	SayBusy    = "I could not answer this, because the language model was busy for too long. " +
		"Please send it again later."
	SayGaveUp = "I was interrupted several times while answering this and have given up. " +
		"Please ask again."
	SayHalted = "I'm paused by an administrator and can't answer now. Admins can let me continue " +
		"with /resume."
	SayFailed = "I could not get an answer from the language model. The person who runs me finds " +
		"the reason in the log."
)

// Texts for the model.
const (
	AskContinue = "You were cut off by the output limit. Go on exactly where you stopped, " +
		"without repeating anything."
	AskAnswer = "Now give your final answer to the user as text, from what you know so far."
	AskSumUp  = "You have used all rounds of tool calls for this answer. Tell the user in text " +
		"what you have found and done, and what is still open."

	ResultUnknown = "The gateway was restarted while this call ran, and its outcome is unknown. " +
		"Check what it has done before you repeat it."
	ResultSkipped = "Skipped: the user said something new. Read that first."
	ResultStopped = "Stopped by the user before it ended."
	ResultFailed  = "The turn ended before this call did."

	ResultNobody      = "Nobody has answered in time."
	ResultNotApproved = "Nobody has approved this in time, so it was not done. Tell the user."
	ResultLate        = "This was approved, but the gateway was away until the approval had " +
		"expired, so it was not done. Tell the user, and ask again if it is still wanted."
	ResultOther = "The user said something else instead of deciding, so this was not done. " +
		"Read that first."
	ResultGoesOn = "The user said something new meanwhile. The sub-agent goes on in the background, " +
		"and its outcome follows as a message."
	ResultChanged = "What was approved is not what would happen now, so it was not done. " +
		"Make the call again."

	// SystemNoTools follows the system prompt, which also describes tools.
	SystemNoTools = "\n\nYou can't call any tools now: the language model that you run on has no " +
		"support for them. Only talk. Never pretend that you have used a tool or will do something " +
		"later; if it takes a tool, say that this model can't use one."

	AskLoop = "You make the same tool call again and again with the same result. Stop, and tell " +
		"the user in text what you have found and what keeps you from going on."
	NoteLoop = "\n[This is the same call with the same result again. Don't repeat it: think of " +
		"another way.]"
	NoteLoopEnded = "\n[The same call with the same result, too often.]"

	MarkFailed      = "[This message could not be answered because of an error.]"
	MarkInterrupted = "[Not answered: the user said something new.]"
	MarkStopped     = "[Stopped by the user.]"
)

// ErrorText returns the text that a person reads about a failed model call.
func ErrorText(err error) string {
	if errors.Is(err, policy.ErrHalted) {
		return SayHalted
	}
	if modelcall.IsSpent(err) {
		return "I can't use the language model for now: the budget is spent. A day's budget begins " +
			"anew at midnight. The person who runs me can raise it: [budget] in the configuration."
	}
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		return SayFailed
	}
	switch e.Kind {
	case llm.RateLimited, llm.Overloaded:
		return "The language model is overloaded right now. Please try again in a minute."
	case llm.TimedOut, llm.Unavailable:
		return "The language model cannot be reached right now. Please try again in a minute."
	case llm.Unauthorized:
		return "I have no access to the language model: its provider refuses the gateway's key. The " +
			"person who runs me must set a valid one and restart me."
	case llm.Forbidden:
		return "The language model's provider does not let the gateway's key do this, for example " +
			"because of the region or the account's rights. The person who runs me finds the reason " +
			"in the log and must change that, or configure another model."
	case llm.NotFound:
		return "The language model's provider does not know the configured model, or not under this " +
			"address. The person who runs me must correct model or base_url in the configuration."
	case llm.BadRequest, llm.BadThoughts, llm.NoTools, llm.NoImages, llm.TooManyImages:
		return "The language model's provider does not accept what I send it in this conversation. " +
			"Start a new one with /new. If that does not help, the person who runs me finds the " +
			"reason in the log and must correct the configuration."
	case llm.OutOfQuota:
		return "The account at the language model's provider has no credit left, or has reached a " +
			"limit on its spending or on free requests per day. Its owner must top it up or raise the limit."
	case llm.ContextTooLong:
		return "This conversation has become too long for the language model. " +
			"Start a new one with /new."
	case llm.ContentRefused:
		return "The language model's provider refuses to answer this."
	}
	return SayFailed
}
