// SPDX-License-Identifier: Apache-2.0
//
// Owners of the objects of libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace sluice::card_check {

template <auto Function>
struct EndedBy {
  template <typename T>
  void operator()(T* object) const {
    Function(object);
  }
};

struct FreeDeviceList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};
struct DeallocateWindow {
  void operator()(ibv_mw* window) const { ibv_dealloc_mw(window); }
};

using DeviceList = std::unique_ptr<ibv_device*, FreeDeviceList>;
using Context = std::unique_ptr<ibv_context, EndedBy<ibv_close_device>>;
using Domain = std::unique_ptr<ibv_pd, EndedBy<ibv_dealloc_pd>>;
using Region = std::unique_ptr<ibv_mr, EndedBy<ibv_dereg_mr>>;
using Queue = std::unique_ptr<ibv_cq, EndedBy<ibv_destroy_cq>>;
using SharedQueue = std::unique_ptr<ibv_srq, EndedBy<ibv_destroy_srq>>;
using Pair = std::unique_ptr<ibv_qp, EndedBy<ibv_destroy_qp>>;
using Window = std::unique_ptr<ibv_mw, DeallocateWindow>;

}  // namespace sluice::card_check
