// SPDX-License-Identifier: Apache-2.0
//
// Precompiled header of the control plane. It includes the standard library and the headers that most of the
// control plane's sources include. Each source still includes what it uses (tests/tidy/build_lines.py
// compiles it without this header). With ccache, `deploy/build.py` or CCACHE_COMMENTS is required. Otherwise
// GCC includes a header with #pragma once a second time if its comments differ from the precompiled ones.
#ifndef SLUICE_PCH_CONTROLPLANE_H  // #pragma once in a main file is a warning
#define SLUICE_PCH_CONTROLPLANE_H

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "dataplane/base/standard_pch.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/layout.h"

#endif  // SLUICE_PCH_CONTROLPLANE_H
