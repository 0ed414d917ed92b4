// Receives notifications as a Node.js program would: verifies each with Standard Webhooks, parses it with the
// CloudEvents SDK, and prints the parsed event as a line of JSON. Arguments: port, secret.
const { createServer } = require("node:http");
const { HTTP } = require("cloudevents");
const { Webhook } = require("standardwebhooks");

const [port, secret] = process.argv.slice(2);

function read(headers, body) {
  new Webhook(secret).verify(body, headers);
  const event = HTTP.toEvent({ headers, body });
  event.validate();
  return { ...event.toJSON(), time: Date.parse(event.time) / 1000 };
}

createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    let found;
    try {
      found = read(request.headers, Buffer.concat(chunks).toString());
      response.statusCode = 204;
    } catch (error) {
      found = { error: String(error) };
      response.statusCode = 400;
    }
    console.log(JSON.stringify(found));
    response.end();
  });
}).listen(Number(port), "127.0.0.1");
