// What every client asks, and how a script tells what it read.

export const QUESTION = "weather?";
export const DESCRIPTION = "Weather of a city.";
export const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

/** The server to ask. */
export const url = process.argv[2];

/** Names in order; one that comes again at once counts once, since deltas are as many as tokens. */
export function inOrder(names) {
  return names.filter((name, at) => name !== names[at - 1]);
}

export function tell(read) {
  process.stdout.write(JSON.stringify(read) + "\n");
}
