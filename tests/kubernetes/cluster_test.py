# SPDX-License-Identifier: Apache-2.0
"""All scenarios on one cluster, for its start takes longer than any of them.

CRUST_SCENARIOS: words, of which a scenario's name must contain one.
"""

import os
import unittest

from edited_claims import EditedClaims
from refused_claims import RefusedClaims
from restarts import Restarts

SCENARIOS = (EditedClaims, RefusedClaims, Restarts)


class ClusterTest(*SCENARIOS):
    """See each."""


def load_tests(loader, _tests, _pattern):
    words = os.environ.get("CRUST_SCENARIOS", "").split() or [""]
    names = [name for scenarios in SCENARIOS for name in loader.getTestCaseNames(scenarios)]
    return unittest.TestSuite(ClusterTest(name) for name in names if any(word in name for word in words))
