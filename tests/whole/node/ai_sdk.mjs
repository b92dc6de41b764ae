// The AI SDK: `streamText` with a tool that runs, and the step that says what comes of it; through
// each of its providers that may be pointed at this server.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { DESCRIPTION, QUESTION, inOrder, tell, url } from "./question.mjs";

const options = { baseURL: `${url}/v1`, apiKey: "none" };
const thinking = { type: "enabled", budgetTokens: 1024 };
const PROVIDERS = {
  responses: { model: createOpenAI(options)("echo") },
  // As of a model that it knows to think: thoughts are shown, come sealed, and go back so.
  stateless: {
    model: createOpenAI(options)("echo"),
    providerOptions: { openai: { store: false, forceReasoning: true, reasoningSummary: "auto" } },
  },
  chat: { model: createOpenAI(options).chat("echo") },
  compatible: {
    model: createOpenAICompatible({ ...options, name: "mlxcel", includeUsage: true })("echo"),
  },
  anthropic: {
    model: createAnthropic(options)("echo"),
    providerOptions: { anthropic: { thinking } },
  },
};

async function ask(provider) {
  const ran = [];
  const result = streamText({
    ...provider,
    prompt: QUESTION,
    maxRetries: 0,
    maxOutputTokens: 512,
    stopWhen: stepCountIs(3),
    tools: {
      weather: tool({
        description: DESCRIPTION,
        inputSchema: z.object({ city: z.string() }),
        execute: async (input) => {
          ran.push(input);
          return `rain in ${input.city}`;
        },
      }),
    },
  });
  const parts = [];
  const errors = [];
  for await (const part of result.fullStream) {
    parts.push(part.type);
    if (part.type === "error" || part.type === "tool-error") errors.push(String(part.error));
  }
  const steps = (await result.steps).map((step) => ({
    reasoning: step.reasoningText ?? null,
    text: step.text,
    calls: step.toolCalls.map((call) => [call.toolName, call.input]),
    results: step.toolResults.map((result) => result.output),
    finish: step.finishReason,
    warnings: step.warnings ?? [],
    input: step.usage.inputTokens,
    output: step.usage.outputTokens,
    total: step.usage.totalTokens,
    thought: step.usage.outputTokenDetails.reasoningTokens ?? null,
  }));
  return { parts: inOrder(parts), errors, ran, steps };
}

const told = {};
for (const [name, provider] of Object.entries(PROVIDERS)) told[name] = await ask(provider);
tell(told);
