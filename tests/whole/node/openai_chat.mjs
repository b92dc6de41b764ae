// The npm `openai` package: the helper that streams a chat completion.
import OpenAI from "openai";
import { DESCRIPTION, PARAMETERS, QUESTION, inOrder, tell, url } from "./question.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const stream = client.chat.completions.stream({
  model: "echo",
  messages: [{ role: "user", content: QUESTION }],
  tools: [
    {
      type: "function",
      function: { name: "weather", description: DESCRIPTION, parameters: PARAMETERS, strict: true },
    },
  ],
  stream_options: { include_usage: true },
});

const events = [];
let reasoning = "";
stream.on("chunk", (chunk) => {
  reasoning += chunk.choices[0]?.delta?.reasoning_content ?? "";
});
for (const name of [
  "content.delta",
  "content.done",
  "tool_calls.function.arguments.delta",
  "tool_calls.function.arguments.done",
]) {
  stream.on(name, () => events.push(name));
}

const answer = await stream.finalChatCompletion();
const [{ message, finish_reason }] = answer.choices;
tell({
  events: inOrder(events),
  reasoning,
  text: message.content,
  calls: message.tool_calls.map((call) => ({
    type: call.type,
    hasId: call.id.startsWith("call_"),
    name: call.function.name,
    arguments: call.function.arguments,
    parsed: call.function.parsed_arguments,
  })),
  finish: finish_reason,
  usage: answer.usage,
});
