"""Cold start of Triton Inference Server: its built-in model on the Python backend, or a model repository of yours.

    pytest --coldstart suites/test_triton.py

Needs tritonserver on PATH, or `--coldstart-python triton=ENV/bin/python` (`coldstart env triton ENV` makes one).
COLDSTART_TRITON_MODEL names a model repository; its model answers text through the generate extension.
"""

import os

import pytest

MODEL = os.environ.get("COLDSTART_TRITON_MODEL", "words")

pytestmark = pytest.mark.slo("cold_start<=120s", "warm_first_token<=3s", "leaked_processes<=0", "leaked_bytes<=0B")


@pytest.mark.coldstart(
    engine="triton",
    model=MODEL,
    tier=["pristine", "restart"],
    rounds=3,
    requests=5,
    # To complete the config, Triton starts a Python model once more before it loads it.
    matrix={"auto_complete_config": [True, False]},
)
# The port opens once every model is loaded.
@pytest.mark.slo("readiness_lie<=10s")
def test_cold_start(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens in (None, 4)
