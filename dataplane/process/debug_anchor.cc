// SPDX-License-Identifier: Apache-2.0
//
// Compiled with debugging information in every build (meson.build). It describes the types that the anchor
// leads to, so that the script also works with a release build, whose other objects have no debugging
// information.
#include "dataplane/process/data_plane.h"

#include "dataplane/process/core.h"
#include "pmd/loopback/device.h"
#include "pmd/softroce/device.h"
#include "pmd/verbs/device.h"

namespace sluice::process {

DataPlane* volatile debug_anchor = nullptr;

namespace {

// Types behind pointers to interfaces. A type without a use would not be described.
struct DebugTypes {
  rdma::loopback::LoopbackDevice* loopback_device;
  rdma::loopback::LoopbackQueuePair* loopback_queue_pair;
  rdma::softroce::SoftDevice* soft_device;
  rdma::softroce::SoftQueuePair* soft_queue_pair;
  rdma::verbs::VerbsDevice* verbs_device;
  rdma::verbs::VerbsQueuePair* verbs_queue_pair;
};
[[gnu::used]] const DebugTypes debug_types{};

// Elements of vectors. alignof completes their types.
static_assert(alignof(std::unique_ptr<Core>) == alignof(Core*));
static_assert(alignof(std::unique_ptr<rpcrdma::Connection>) == alignof(rpcrdma::Connection*));

}  // namespace
}  // namespace sluice::process
