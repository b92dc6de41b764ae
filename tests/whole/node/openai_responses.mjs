// The npm `openai` package: the helper that streams a response.
import OpenAI from "openai";
import { DESCRIPTION, PARAMETERS, QUESTION, inOrder, tell, url } from "./question.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const stream = client.responses.stream({
  model: "echo",
  input: QUESTION,
  tools: [
    {
      type: "function",
      name: "weather",
      description: DESCRIPTION,
      parameters: PARAMETERS,
      strict: true,
    },
  ],
});

const events = [];
const heard = { reasoning: "", text: "", arguments: "" };
const ended = [];
const numbers = [];
for await (const event of stream) {
  events.push(event.type);
  numbers.push(event.sequence_number);
  if (event.type === "response.reasoning_text.delta") heard.reasoning += event.delta;
  if (event.type === "response.output_text.delta") heard.text += event.delta;
  if (event.type === "response.function_call_arguments.delta") heard.arguments += event.delta;
  if (event.type.endsWith("_text.done")) ended.push(event.text);
  if (event.type.endsWith("_arguments.done")) ended.push(event.arguments);
}

const answer = await stream.finalResponse();
const [reasoning, message, call] = answer.output;
tell({
  events: inOrder(events),
  inSequence: numbers.every((number, at) => number === at),
  heard,
  ended,
  output: answer.output.map((item) => [item.type, item.status]),
  reasoning: reasoning.content,
  text: answer.output_text,
  role: message.role,
  call: {
    hasId: call.call_id.startsWith("call_"),
    name: call.name,
    arguments: call.arguments,
    parsed: call.parsed_arguments,
  },
  finish: answer.status,
  usage: answer.usage,
});
