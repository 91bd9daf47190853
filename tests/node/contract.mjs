// The vendors' SDKs for Node against a gateway: for each client, streamed and not, a loop of one tool call and its answer, and one error.
// Reads {url, token} from stdin, writes one line of JSON: what each loop came to. What it should come to is Python's business.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const PARAMETERS = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const SYSTEM = "Be brief.";
const QUESTION = "List it.";
const OUTPUT = "a.txt\nb.txt";

async function read(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString());
}

const { url, token } = await read(process.stdin);
const openai = (key) => new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = (key) => new Anthropic({ baseURL: url, apiKey: key, authToken: null, maxRetries: 0 });

async function chat(streamed, key = token) {
  const client = openai(key);
  const tools = [{ type: "function", function: { name: "shell", parameters: PARAMETERS } }];
  const messages = [{ role: "system", content: SYSTEM }, { role: "user", content: QUESTION }];
  const ask = async () => {
    const body = { model: "any", messages, tools };
    if (!streamed) return client.chat.completions.create(body);
    const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
    return stream.finalChatCompletion();
  };
  const first = await ask();
  const call = first.choices[0].message.tool_calls[0];
  messages.push(first.choices[0].message, { role: "tool", tool_call_id: call.id, content: OUTPUT });
  const second = await ask();
  return {
    said: first.choices[0].message.content, name: call.function.name, arguments: call.function.arguments,
    stop: first.choices[0].finish_reason, answer: second.choices[0].message.content,
    input: second.usage.prompt_tokens, output: second.usage.completion_tokens,
  };
}

async function responses(streamed, key = token) {
  const client = openai(key);
  const tools = [{ type: "function", name: "shell", parameters: PARAMETERS, strict: false }];
  const input = [{ role: "user", content: QUESTION }];
  const ask = async () => {
    const body = { model: "any", instructions: SYSTEM, input, tools, store: false };
    return streamed ? client.responses.stream(body).finalResponse() : client.responses.create(body);
  };
  const first = await ask();
  const call = first.output.find((item) => item.type === "function_call");
  input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: OUTPUT });
  const second = await ask();
  return {
    said: first.output_text, name: call.name, arguments: call.arguments, stop: first.status, answer: second.output_text,
    input: second.usage.input_tokens, output: second.usage.output_tokens,
  };
}

async function messages(streamed, key = token) {
  const client = anthropic(key);
  const tools = [{ name: "shell", input_schema: PARAMETERS }];
  const turns = [{ role: "user", content: QUESTION }];
  const ask = async () => {
    const body = { model: "any", max_tokens: 100, system: SYSTEM, messages: turns, tools };
    return streamed ? client.messages.stream(body).finalMessage() : client.messages.create(body);
  };
  const words = (message) => message.content.filter((b) => b.type === "text").map((b) => b.text).join("");
  const first = await ask();
  const call = first.content.find((block) => block.type === "tool_use");
  turns.push(
    { role: "assistant", content: first.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: OUTPUT }] },
  );
  const second = await ask();
  return {
    said: words(first), name: call.name, arguments: JSON.stringify(call.input), stop: first.stop_reason, answer: words(second),
    input: second.usage.input_tokens + (second.usage.cache_read_input_tokens ?? 0), output: second.usage.output_tokens,
  };
}

const results = {};
for (const [name, loop] of Object.entries({ chat, responses, messages })) {
  for (const streamed of [false, true]) results[`${name}/${streamed ? "streamed" : "whole"}`] = await loop(streamed);
  try {
    await loop(false, "gbt.not.a.token");
  } catch (error) {
    results[`${name}/refused`] = { status: error.status, type: error.constructor.name, message: error.message };
  }
}
console.log(JSON.stringify(results));
