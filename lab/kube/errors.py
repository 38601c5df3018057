"""What the API server refuses: the `Status` object of a failure, with the reasons and texts that kubectl prints."""

from typing import Any


class ApiError(Exception):
    """A failure with its HTTP status: ApiError(404, "NotFound", 'pods "a" not found')."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> dict[str, Any]:
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        return body | {"reason": self.reason, "details": self.details, "code": self.code}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def not_found(qualified: str, name: str) -> ApiError:
    kind, _, group = qualified.partition(".")
    return ApiError(404, "NotFound", f'{qualified} "{name}" not found', name=name, group=group, kind=kind)


def already_exists(qualified: str, name: str, deleting: bool = False) -> ApiError:
    kind, _, group = qualified.partition(".")
    text = f'{"object is being deleted: " if deleting else ""}{qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, name=name, group=group, kind=kind)


def conflict(qualified: str, name: str) -> ApiError:
    text = "the object has been modified; please apply your changes to the latest version and try again"
    kind, _, group = qualified.partition(".")
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {text}'
    return ApiError(409, "Conflict", message, name=name, group=group, kind=kind)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def invalid(kind: str, group: str, name: str, causes: list[tuple[str, str]]) -> ApiError:
    """422 with its causes: (field, 'Invalid value: "x": why')."""
    texts = [f"{field}: {text}" for field, text in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    listed = [{"reason": "FieldValueInvalid", "message": text, "field": field} for field, text in causes]
    message = f'{qualified} "{name}" is invalid: {joined}'
    return ApiError(422, "Invalid", message, name=name, group=group, kind=kind, causes=listed)
