// SPDX-License-Identifier: Apache-2.0
//
// Table of the providers of rdma-core: the interfaces that Sluice uses with each, its deviations, and the
// source that shows them. Nothing else in the driver depends on the name of a provider.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::rdma::verbs {

struct Provider {
  std::string_view name;        ///< folder in rdma-core's providers/
  std::string_view drivers[3];  ///< kernel drivers of its devices
  // Interfaces whose implementation was read or tested. All others are used in their classic form.
  bool extended_posting = false;
  bool extended_polling = false;
  /// Send with Invalidate transfers the rkey, if the device reports the feature.
  bool sends_rkey = true;
  /// Number of RDMA Reads of one piece that a queue pair may have posted. Zero means as many as the send
  /// queue holds.
  std::uint32_t max_posted_reads = 0;
  bool in_software = false;    ///< a kernel device without hardware
  std::string_view deviation;  ///< empty if none is known
  std::string_view source;     ///< below rdma-core's providers/
};

/// Provider of a device whose driver is not in the table or cannot be found.
inline constexpr Provider kUnknownProvider{.name = "unknown", .drivers = {}, .deviation = {}, .source = {}};

inline constexpr Provider kProviders[] = {
    {.name = "mlx5",
     .drivers = {"mlx5_core", "mlx5_core.sf"},
     .extended_posting = true,
     .extended_polling = true,
     .deviation = {},
     .source = "mlx5/qp.c, mlx5/cq.c"},
    {.name = "mlx4",
     .drivers = {"mlx4_core"},
     .extended_polling = true,
     .deviation = "no extended posting",
     .source = "mlx4/cq.c"},
    {.name = "ionic",
     .drivers = {"ionic"},
     .deviation = "no shared receive queue; extended interfaces were not tested",
     .source = "ionic/ionic_verbs.c"},
    {.name = "irdma",
     .drivers = {"ice", "i40e", "idpf"},
     .deviation = "extended polling returns zero for an invalidated rkey; windows without a flag of type 2",
     .source = "irdma/uverbs.c, irdma_wc_read_imm_data()"},
    {.name = "bnxt_re",
     .drivers = {"bnxt_en"},
     .deviation = "functions of extended posting are null, and a batch loses headers; flag of type 2 windows "
                  "without windows",
     .source = "bnxt_re/verbs.c, bnxt_re_create_qp_ex()"},
    {.name = "hns",
     .drivers = {"hns3"},
     .deviation = "extended interfaces were not tested; an error completion makes a poll call the kernel",
     .source = "hns/hns_roce_u_hw_v2.c"},
    {.name = "qedr",
     .drivers = {"qede"},
     .deviation = "no windows, no extended interfaces",
     .source = "qedr/qelr_main.c"},
    {.name = "mana",
     .drivers = {"mana"},
     .max_posted_reads = 128,
     .deviation = "windows can be allocated and not bound; RDMA Reads have a queue of 4096 bytes",
     .source = "mana/wr.c, mana/qp.c"},
    {.name = "erdma",
     .drivers = {"erdma"},
     .deviation = "an RDMA Read ignores all scatter elements after the first",
     .source = "erdma/erdma_verbs.c"},
    {.name = "vmw_pvrdma",
     .drivers = {"vmw_pvrdma"},
     .sends_rkey = false,
     .deviation = "Send with Invalidate does not transfer the rkey",
     .source = "vmw_pvrdma/qp.c, pvrdma_post_send()"},
    {.name = "rxe",
     .drivers = {"software"},
     .in_software = true,
     .deviation =
         "extended posting of rdma-core 44 loses scatter lists and inline data, extended polling skips "
         "completions; the flag of an invalidation is another bit",
     .source = "rxe/rxe.c"},
};

/// Returns the provider of devices of this kernel driver.
constexpr const Provider& provider_of_driver(std::string_view driver) noexcept {
  for (const Provider& provider : kProviders)
    for (const std::string_view name : provider.drivers)
      if (!name.empty() && name == driver) return provider;
  return kUnknownProvider;
}

}  // namespace sluice::rdma::verbs
