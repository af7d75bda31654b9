"""Reads requests as JSON, and writes whether the published verifier accepts each
of them, and how it would have signed it."""

import json
import sys
from datetime import datetime, timezone

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

answers = []
for case in json.load(sys.stdin):
    webhook = Webhook(case["secret"])
    headers = {
        "webhook-id": case["id"],
        "webhook-timestamp": case["timestamp"],
        "webhook-signature": case["signature"],
    }
    try:
        webhook.verify(case["body"], headers)
        accepted = True
    except WebhookVerificationError:
        accepted = False
    at = datetime.fromtimestamp(int(case["timestamp"]), timezone.utc)
    signature = webhook.sign(case["id"], at, case["body"])
    answers.append({"accepted": accepted, "signature": signature})
json.dump({"standardwebhooks": answers}, sys.stdout)
