// SPDX-License-Identifier: Apache-2.0
//
// Marks the stores that another process can see: between two of them a side may be stopped or killed. Nothing in the
// programs; the model of the protocol between the planes (tests/unit/model) switches from side to side there.
#pragma once

#ifdef SLUICE_STORE_POINTS
namespace sluice {
void on_store_point() noexcept;
}
#define SLUICE_STORE_POINT() ::sluice::on_store_point()
#else
#define SLUICE_STORE_POINT() static_cast<void>(0)
#endif
