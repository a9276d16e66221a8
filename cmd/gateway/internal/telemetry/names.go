package telemetry

// Names of spans and their attributes, from OpenTelemetry's semantic conventions for generative AI.
const (
	opAgent = "invoke_agent"
	opChat  = "chat"
	opTool  = "execute_tool"

	attrOperation     = "gen_ai.operation.name"
	attrAgent         = "gen_ai.agent.name"
	attrConversation  = "gen_ai.conversation.id"
	attrRequestModel  = "gen_ai.request.model"
	attrResponseModel = "gen_ai.response.model"
	attrInput         = "gen_ai.usage.input_tokens"
	attrCached        = "gen_ai.usage.cache_read.input_tokens"
	attrOutput        = "gen_ai.usage.output_tokens"
	attrToolName      = "gen_ai.tool.name"
	attrToolCall      = "gen_ai.tool.call.id"
	attrError         = "error.type"

	// What the conventions have no names for.
	attrAccount  = "gateway.account"
	attrTurn     = "gateway.turn.id"
	attrKind     = "gateway.turn.kind"
	attrAttempt  = "gateway.turn.attempt"
	attrOutcome  = "gateway.turn.outcome"
	attrRounds   = "gateway.turn.rounds"
	attrWaited   = "gateway.turn.waited_seconds"
	attrNotes    = "gateway.model.notes"
	attrFirst    = "gateway.model.first_output_seconds"
	attrCost     = "gateway.model.cost_dollars"
	attrApproval = "gateway.tool.waits"
)
