// The npm `@anthropic-ai/sdk` package: the helper that streams a message.
import Anthropic from "@anthropic-ai/sdk";
import { DESCRIPTION, PARAMETERS, QUESTION, inOrder, tell, url } from "./question.mjs";

const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const stream = client.messages.stream({
  model: "echo",
  max_tokens: 2048,
  thinking: { type: "enabled", budget_tokens: 1024 },
  messages: [{ role: "user", content: QUESTION }],
  tools: [{ name: "weather", description: DESCRIPTION, input_schema: PARAMETERS }],
});

const events = [];
const heard = { thinking: "", text: "", json: "" };
stream.on("streamEvent", (event) => events.push(event.delta?.type ?? event.type));
stream.on("thinking", (delta) => (heard.thinking += delta));
stream.on("text", (delta) => (heard.text += delta));
stream.on("inputJson", (delta) => (heard.json += delta));

const answer = await stream.finalMessage();
tell({
  events: inOrder(events),
  heard,
  content: answer.content.map(({ id, ...block }) =>
    id === undefined ? block : { ...block, hasId: id.startsWith("toolu_") },
  ),
  role: answer.role,
  finish: answer.stop_reason,
  usage: answer.usage,
});
