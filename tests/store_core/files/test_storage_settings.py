# SPDX-License-Identifier: Apache-2.0
"""Settings of a storage are checked by name and type, and never shown."""

from __future__ import annotations

from typing import Final

import pytest

from store_core.errors import InvalidOptionError
from store_core.files.storage import NO_SETTINGS, StorageSettings

HIDDEN: Final = "nobody-may-see-this"


def test_settings_are_the_same_in_any_order_and_case() -> None:
    assert StorageSettings.of({"Region": "x", "scheme": "http"}) == StorageSettings.of(
        {"scheme": "http", "region": "x"}
    )


def test_values_become_text() -> None:
    settings = StorageSettings.of({"anonymous": True, "connect_timeout": 5})
    types: dict[str, type] = {"anonymous": bool, "connect_timeout": float}
    assert settings.arguments(types) == {"anonymous": True, "connect_timeout": 5.0}


@pytest.mark.parametrize(
    ("settings", "types", "says"),
    [
        ({"anonymous": HIDDEN}, {"anonymous": bool}, r"storage\.anonymous: expected true or false"),
        ({"connect_timeout": HIDDEN}, {"connect_timeout": float}, r"storage\.connect_timeout: expected a number"),
        ({"secret_kye": HIDDEN}, {"secret_key": str}, "did you mean 'secret_key'"),
        ({"token": HIDDEN}, {}, "the settings are none"),
    ],
)
def test_wrong_settings_are_rejected_without_their_values(
    settings: dict[str, str], types: dict[str, type], says: str
) -> None:
    with pytest.raises(InvalidOptionError, match=says) as caught:
        StorageSettings.of(settings).arguments(types)
    assert HIDDEN not in str(caught.value)


@pytest.mark.parametrize("settings", [{"a b": "x"}, {"token": [HIDDEN]}, {"token": None}])
def test_names_and_values_of_other_kinds_are_rejected(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        StorageSettings.of(settings)
    assert HIDDEN not in str(caught.value)


def test_secrets_are_hidden_in_errors_of_others_and_names_of_places_are_not() -> None:
    settings = StorageSettings.of({"secret_key": HIDDEN, "region": "eu-west-1", "account_key": "abc"})
    assert settings.hidden_in(f"{HIDDEN} in eu-west-1, abc") == "*** in eu-west-1, abc"
    assert HIDDEN not in repr(settings)


def test_there_may_be_none() -> None:
    assert not NO_SETTINGS
    assert StorageSettings.of({"region": "x"})
