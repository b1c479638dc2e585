// SPDX-License-Identifier: Apache-2.0
//
// Precompiled header of the test programs that have several sources.
#ifndef SLUICE_PCH_GTEST_H  // #pragma once in a main file is a warning
#define SLUICE_PCH_GTEST_H

#include <gtest/gtest.h>

#include "dataplane/base/standard_pch.h"

#endif
