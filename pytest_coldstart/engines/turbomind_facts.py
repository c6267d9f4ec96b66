"""What differs between versions of LMDeploy's TurboMind, as data.

Read off the sources of 0.9.2, 0.14 and 0.15 and off the package and boots of 0.18.0 on an H200; a row holds from the
first of these versions that was seen to have it.
"""

from __future__ import annotations

from pytest_coldstart.engines.facts import Since

#: What cache_max_entry_count is. From 0.15.0 on, 1 or more ends the boot with a failed check in the engine.
CACHE_MAX_ENTRY_COUNT = (Since((0, 9), "share or blocks"), Since((0, 15), "share"))

#: What its log says of the KV cache where TM_CACHE_LOG_INTERVAL is set.
CACHE_LOG = (Since((0, 9), "nothing"), Since((0, 15), "blocks"))

#: What /health says once HTTP is up, and it is up after the engine: always 200, or 503 while the engine is not well.
HEALTH = (Since((0, 9, 2), "always 200"), Since((0, 18), "200 while the engine is well"))

#: The engine's own histogram of the time to first token, seconds.
TTFT_HISTOGRAM = "lmdeploy:time_to_first_token_seconds"
