// SPDX-License-Identifier: Apache-2.0
//
// Precompiled header of the control plane. It has the standard library and the headers that most of its sources include.
// Each source still includes what it uses (tests/tidy/build_lines.py compiles it without). With ccache, `deploy/build.py` or CCACHE_COMMENTS
// is needed: GCC includes a header with #pragma once again if its comments differ from those that were precompiled.
#ifndef SLUICE_PCH_CONTROLPLANE_H  // #pragma once in a main file is a warning
#define SLUICE_PCH_CONTROLPLANE_H

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "dataplane/base/standard_pch.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/layout.h"

#endif  // SLUICE_PCH_CONTROLPLANE_H
