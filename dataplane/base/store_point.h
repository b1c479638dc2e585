// SPDX-License-Identifier: Apache-2.0
//
// Marker for stores that another process can see: a process may be stopped or killed between two of them. The
// marker has no effect in the programs; the model of the protocol between the planes (tests/unit/model)
// switches sides there.
#pragma once

#ifdef SLUICE_STORE_POINTS
namespace sluice {
void on_store_point() noexcept;
}
#define SLUICE_STORE_POINT() ::sluice::on_store_point()
#else
#define SLUICE_STORE_POINT() static_cast<void>(0)
#endif
