// SPDX-License-Identifier: Apache-2.0
//
// Markers for stores that another process or reactor can see, and for loads of what another one stores.
// Either side may be stopped there, or killed between two stores. The markers have no effect in the programs;
// the models in tests/unit/model switch sides there.
#pragma once

#ifdef SLUICE_STORE_POINTS
namespace sluice {
void on_store_point() noexcept;
}
#define SLUICE_STORE_POINT() ::sluice::on_store_point()
#else
#define SLUICE_STORE_POINT() static_cast<void>(0)
#endif
#define SLUICE_LOAD_POINT() SLUICE_STORE_POINT()
