"""Made-up keys of the kinds that must not be stored, put together so that no scanner takes this
file for a leak."""

from __future__ import annotations

_BODY = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
_HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"


def _long(size: int) -> str:
    return (_BODY * (size // len(_BODY) + 1))[:size]


KEYS = (
    *(f"gh{kind}_" + _long(36) for kind in "pousr"),
    "github_pat_" + _long(22) + "_" + _long(59),
    "sk-" + _long(48),
    "sk-proj-" + _long(74),
    "sk-ant-api03-" + _long(93) + "AA",
    "sk_live_" + _long(24),
    "rk_live_" + _long(24),
    "SG." + _long(22) + "." + _long(43),
    "pypi-AgEIcHlwaS5vcmc" + _long(80),
    "hvs." + _long(95),
    "dop_v1_" + _HEX * 2,
    "GOCSPX-" + _long(28),
    "ops_eyJ" + _long(250),
    "1234567890:AA" + _long(33),
    "SK" + _HEX,
    "AC" + _HEX,
    "AKIA" + "ABCD2345" * 2,
    "AIza" + _long(35),
    "xoxb-123456789012-" + _long(24),
    "npm_" + _long(36),
    "glpat-" + _long(20),
    "hf_" + "aBcDeFgHiJ" * 3 + "kLmN",
    "ya29." + _long(60),
    "eyJ" + _long(33) + ".eyJ" + _long(80) + "." + _long(43),
    "AccountKey=" + _long(86) + "==",
    "dapi" + _HEX,
    "shpat_" + _HEX,
    "lin_api_" + _long(40),
    "pplx-" + _long(48),
    "glpat-" + _long(27) + ".0y1a2b3c4",
    "hooks.slack.com/triggers/" + _long(40),
    "FLWSECK_TEST-" + "0a1b2c3d4e5f6g7h" * 2 + "-X",
    "sgp_local_" + _HEX + _HEX[:8],
    "dnkey-" + _long(26) + "-" + _long(52),
    "eyJrIjoi" + _long(80) + "==",
    "ico-" + _long(32),
    "s-s4t2ud-" + _HEX * 2,
    "v1.0-" + _HEX[:24] + "-" + (_HEX * 5)[:146],
    "scauth_" + _long(10) + ".abcd.acc-" + _long(20) + "." + _long(40),
    "access-sandbox-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
    ".webhook.office.com/webhookb2/" + _HEX + "@" + _HEX + "/IncomingWebhook/" + _HEX,
    "pat." + _long(22) + "." + _HEX[:24] + "." + _long(20),
    "pat" + _long(14) + "." + _HEX * 2,
    "ext_" + _long(10) + ".abcd.acc_" + _long(20).lower() + "." + _long(40),
    "4b1d" + _long(38),
    "sk." + _long(60) + "." + _long(22),
    "t1." + _long(30) + "." + _long(86) + "==",
    "A3TX" + "ABCD2345" * 2,
    "FLWPUBK_TEST-" + "0a1b2c3d4e5f6071" * 2 + "-X",
    "ZXlK" + _long(120),
    "sl." + _long(135),
    "AQVN" + _long(36),
    "API-" + "ABCD2345EFGH6789JKLM1234NP",
    "_gitlab_session=" + _HEX,
)
"""One of each kind."""
