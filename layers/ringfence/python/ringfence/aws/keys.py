"""API keys in the ledger's table: one item found by the secret's hash, and one in a list, written and removed together.

Both lie under partition keys that no job id can be and that template.yaml keeps every function from, by their prefix: only the
gateway may read one that it knows, and only an operator's credentials write them. Keys are few and changed by hand, so their
list is one partition.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ringfence.aws.dynamo_calls import calling
from ringfence.aws.failures import code_of
from ringfence.aws.rows import API_KEY_PREFIX, Item, is_storable_key
from ringfence.errors import Rejected, Unavailable
from ringfence.ports import ApiKey

LIST_PARTITION = API_KEY_PREFIX + "list"
SORT_KEY = "k"
REFUSED = "ConditionalCheckFailed"


class DynamoKeys:
    """``client`` is boto3's low-level DynamoDB client, ``table`` the ledger's table."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def find(self, sha256: str) -> ApiKey | None:
        """The key of this secret; strongly consistent, so that a removed key opens nothing."""
        if not is_storable_key(_by_secret(sha256)["pk"]["S"]):
            return None
        with calling("look up an API key"):
            found = self._get(_by_secret(sha256))
        return None if found is None else _from_item(found)

    def add(self, key: ApiKey) -> None:
        """Keep a new key; the very same key twice is one. Raises `Rejected` (409, ``key-exists``) if id or secret is taken."""
        absent = {"TableName": self._table, "ConditionExpression": "attribute_not_exists(pk)"}
        attributes = _attributes(key)
        puts = [
            {"Put": {**absent, "Item": {**place, **attributes}}} for place in (_by_secret(key.sha256), _in_list(key.key_id))
        ]
        with calling("add an API key"):
            try:
                self._client.transact_write_items(TransactItems=puts)
            except ClientError as failure:
                _ensure_refused(failure)
                there = self._get(_in_list(key.key_id))
                if there is None or _from_item(there) != key:
                    raise Rejected("there is a key with this id or secret", kind="key-exists", status=409) from failure

    def remove(self, key_id: str) -> bool:
        """Remove a key. False if there is none of this id."""
        with calling("remove an API key"):
            listed = self._get(_in_list(key_id))
            if listed is None:
                return False
            places = (_in_list(key_id), _by_secret(_from_item(listed).sha256))
            deletes = [{"Delete": {"TableName": self._table, "Key": place}} for place in places]
            try:
                self._client.transact_write_items(TransactItems=deletes)
            except ClientError as failure:
                _ensure_refused(failure)
        return True

    def all(self) -> list[ApiKey]:
        """Every key, the oldest first."""
        query: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :keys",
            "ExpressionAttributeValues": {":keys": {"S": LIST_PARTITION}},
            "ConsistentRead": True,
        }
        found: list[ApiKey] = []
        with calling("list the API keys"):
            while True:
                reply = self._client.query(**query)
                found += [_from_item(item) for item in reply["Items"]]
                if "LastEvaluatedKey" not in reply:
                    return sorted(found, key=lambda key: (key.created_at, key.key_id))
                query["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    def _get(self, place: Item) -> Item | None:
        found: Item | None = self._client.get_item(TableName=self._table, Key=place, ConsistentRead=True).get("Item")
        return found


def _ensure_refused(failure: ClientError) -> None:
    """Return if a condition did not hold; `Unavailable` for a conflict; anything else is raised as it came."""
    if code_of(failure) != "TransactionCanceledException":
        raise failure
    codes = [reason.get("Code") for reason in failure.response.get("CancellationReasons", [])]
    if REFUSED not in codes:
        raise Unavailable(f"the change of an API key met {', '.join(str(code) for code in codes)}") from failure


def _by_secret(sha256: str) -> Item:
    return {"pk": {"S": API_KEY_PREFIX + sha256}, "sk": {"S": SORT_KEY}}


def _in_list(key_id: str) -> Item:
    return {"pk": {"S": LIST_PARTITION}, "sk": {"S": key_id}}


def _attributes(key: ApiKey) -> Item:
    return {
        "id": {"S": key.key_id},
        "h": {"S": key.sha256},
        "te": {"S": key.tenant},
        "sc": {"S": " ".join(sorted(key.scopes))},
        # Not "c": that is the range key of the listing index.
        "at": {"N": str(key.created_at)},
        "no": {"S": key.note},
    }


def _from_item(item: Item) -> ApiKey:
    return ApiKey(
        key_id=item["id"]["S"],
        sha256=item["h"]["S"],
        tenant=item["te"]["S"],
        scopes=frozenset(item["sc"]["S"].split()),
        created_at=int(item["at"]["N"]),
        note=item["no"]["S"],
    )
