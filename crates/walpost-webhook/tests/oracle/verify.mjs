// Reads requests as JSON, and writes for each published verifier whether it
// accepts each of them, and how it would have signed it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(`${process.cwd()}/`));
const cases = JSON.parse(readFileSync(0, "utf8"));
const answers = {};
for (const name of ["standardwebhooks", "svix"]) {
    const { Webhook } = await import(pathToFileURL(require.resolve(name)).href);
    answers[name] = cases.map(({ secret, id, timestamp, signature, body }) => {
        const webhook = new Webhook(secret);
        const headers = {
            "webhook-id": id,
            "webhook-timestamp": timestamp,
            "webhook-signature": signature,
        };
        let accepted = true;
        try {
            webhook.verify(body, headers);
        } catch {
            accepted = false;
        }
        return { accepted, signature: webhook.sign(id, new Date(Number(timestamp) * 1000), body) };
    });
}
process.stdout.write(JSON.stringify(answers));
