# SPDX-License-Identifier: Apache-2.0
"""All scenarios on one cluster, because its start takes longer than any of them.

CRUST_SCENARIOS: words, of which a scenario's name must contain one; or "core", for one scenario of each
kind.
"""

import os
import unittest

from deployment import Deployment
from edited_claims import EditedClaims
from raw_claims import RawClaims
from refused_claims import RefusedClaims
from restarts import Restarts
from shared_claims import SharedClaims

SCENARIOS = (EditedClaims, RawClaims, RefusedClaims, SharedClaims, Restarts, Deployment)
# One of each kind; the others are variations, or take long.
CORE = ("test_running_pod", "test_before_the_pod", "test_raw_claim", "test_raw_claim_of_another_driver",
        "test_no_monitor", "test_policy", "test_infeasible", "test_crustd_is_killed", "test_kubelet_is_restarted",
        "test_daemonset", "test_helm_chart")


class ClusterTest(*SCENARIOS):
    """See each."""


def load_tests(loader, _tests, _pattern):
    names = [name for scenarios in SCENARIOS for name in loader.getTestCaseNames(scenarios)]
    words = os.environ.get("CRUST_SCENARIOS", "").split()
    if words == ["core"]:
        names = [names[names.index(name)] for name in CORE]
    elif words:
        names = [name for name in names if any(word in name for word in words)]
    return unittest.TestSuite(ClusterTest(name) for name in names)
