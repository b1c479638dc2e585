# SPDX-License-Identifier: Apache-2.0
"""The steps of each tier, in the order in which each lane takes them."""
from steps import Build, Command, Preparation, Suite

PRODUCT = ("sluice-dataplane", "controlplane/sluice-controlplane", "cli/sluicectl", "cli/sluice-bench")
PYTHON = "python3"

# Tests that need no guest run on one build with ASan and UBSan. A short end-to-end test of each kind runs on
# the release build. The product is built separately, so that the time of the run can be compared with it.
QUICK = [
    Build("product", targets=(*PRODUCT, "cli/card_check/commit.h")),  # the style suite compiles what includes the header
    Build("sanitized tests", after=("product",), lane="back", directory="build-asan", suites=("unit", "conformance", "isolation", "fault", "fuzz")),
    Suite("style", after=("product",), suite="style"),
    Preparation("guest image", after=("product",), command=("bash", "tests/interop/image.sh")),
    Suite("real", after=("product", "guest image"), suite="real"),
    Suite("unit", after=("sanitized tests",), directory="build-asan", suite="unit"),
    Suite("conformance", after=("sanitized tests",), directory="build-asan", suite="conformance"),
    Suite("isolation", after=("sanitized tests",), directory="build-asan", suite="isolation"),
    Suite("fault", after=("sanitized tests",), directory="build-asan", suite="fault"),
    Suite("fuzz", after=("sanitized tests",), directory="build-asan", suite="fuzz"),
]

REST = [
    Build("interop programs", after=("product",), suites=("interop", "operations", "fault", "instructions")),
    Suite("instructions", after=("interop programs",), suite="instructions"),
    Suite("interop", after=("interop programs",), suite="interop"),
    Suite("operations", after=("interop programs",), suite="operations"),
    Suite("gateway_chaos", after=("product", "guest image"), suite="gateway_chaos"),
    Suite("fault release", after=("interop programs",), suite="fault"),
    Build("threaded tests", after=("product",), lane="back", directory="build-tsan", suites=("tsan",)),
    Suite("tsan", after=("threaded tests",), lane="back", directory="build-tsan", suite="tsan"),
    # Two thirds of all compilations, which a slow machine omits.
    Build("threaded tests of the control plane", after=("tsan",), lane="back", directory="build-tsan", suites=("tsan_control",)),
    Suite("tsan control", after=("threaded tests of the control plane",), lane="back", directory="build-tsan", suite="tsan_control"),
    Suite("tidy", after=("product",), lane="back", suite="tidy", tests=("headers", "clang_tidy", "mutation_selftest")),
    # The score of a small sample varies, so its threshold is low. A long run's is 0.90
    # (tests/mutation/README.md).
    Command("mutation", after=("product",), lane="back", junit_file="build-logs/mutation.junit.xml",
            command=(PYTHON, "tests/mutation/mutate.py", "--sample", "15", "--seed", "16", "--threshold", "0.5", "--junit",
                     "build-logs/mutation.junit.xml")),
]


def coverage(steps):
    """Returns the step that computes the requirement coverage of the tests of the other steps."""
    ran = [step for step in steps if isinstance(step, Suite) and step.suite in ("unit", "conformance", "interop")]
    return Command("coverage", after=tuple(step.name for step in ran), junit_file="build-logs/coverage.junit.xml",
                   command=(PYTHON, "tests/conformance/coverage.py", "--junit", "build-logs/coverage.junit.xml",
                            *(step.junit() for step in ran)))


ALL = [*QUICK, *REST]
GROUPS = {
    "quick": [step.name for step in QUICK],
    "rest": [step.name for step in REST] + ["coverage"],
    "all": [step.name for step in ALL] + ["coverage"],
    "fault": ["fault", "fault release"],
    "tsan": ["tsan", "tsan control"],
    "tidy": ["style", "tidy"],
    "coverage": ["coverage"],
}
