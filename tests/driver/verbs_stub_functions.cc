// SPDX-License-Identifier: Apache-2.0
//
// The functions of libibverbs, and the device that they return.
#include <endian.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/driver/verbs_stub.h"
#include "tests/driver/verbs_stub_device.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace sluice::rdma::conformance {
namespace {

/// The device's folder in sysfs, as far as the driver reads it.
class SysfsFolder {
 public:
  SysfsFolder() {
    char path[] = "/tmp/sluice-verbs-stub-XXXXXX";
    if (::mkdtemp(path) != nullptr) path_ = path;
    set_driver(kFullProvider.driver);
  }
  ~SysfsFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  SysfsFolder(const SysfsFolder&) = delete;
  SysfsFolder& operator=(const SysfsFolder&) = delete;

  /// A folder of a device without hardware has a link to the virtual devices and no driver.
  void set_driver(std::string_view driver) const {
    std::filesystem::remove_all(path_ / "hardware");
    std::filesystem::remove_all(path_ / "devices");
    std::filesystem::remove(path_ / "shown");
    const auto folder =
        path_ / "devices" / (driver.empty() ? "virtual" : "pci0000:00") / "infiniband" / "stub0";
    std::filesystem::create_directories(folder / "device");
    if (!driver.empty())
      std::filesystem::create_symlink("/sys/bus/pci/drivers/" + std::string(driver),
                                      folder / "device" / "driver");
    std::filesystem::create_symlink(folder, path_ / "shown");
  }
  std::string shown() const { return (path_ / "shown").string(); }

 private:
  std::filesystem::path path_;
};

const SysfsFolder& folder() {
  static const SysfsFolder made;
  return made;
}

ibv_device device = [] {
  ibv_device made{};
  made.node_type = IBV_NODE_CA;
  made.transport_type = IBV_TRANSPORT_IB;
  std::strcpy(made.name, "stub0");
  std::strcpy(made.dev_path, "/");
  std::strncpy(made.ibdev_path, folder().shown().c_str(), sizeof made.ibdev_path - 1);
  return made;
}();
ibv_device* devices[] = {&device, nullptr};

int post_receives(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
  VerbsStub::get().post(qp, wr);
  return 0;
}

verbs_context made_context() {
  verbs_context extended{};
  extended.sz = sizeof extended;
  extended.alloc_td = [](ibv_context* of, ibv_td_init_attr*) {
    return VerbsStub::get().make_thread_domain(of);
  };
  extended.dealloc_td = [](ibv_td* gone) {
    VerbsStub::get().note("ibv_dealloc_td");
    VerbsStub::get().forget_domain(gone);
    delete gone;
    return 0;
  };
  extended.alloc_parent_domain = [](ibv_context*, ibv_parent_domain_init_attr* wanted) {
    return VerbsStub::get().make_domain_of(*wanted);
  };
  extended.create_qp_ex = [](ibv_context*, ibv_qp_init_attr_ex* wanted) {
    return VerbsStub::get().make_extended(*wanted);
  };
  extended.create_cq_ex = [](ibv_context* of, ibv_cq_init_attr_ex* wanted) {
    return VerbsStub::get().make_extended_queue(of, wanted->cqe);
  };
  ibv_context& made = extended.context;
  made.abi_compat = __VERBS_ABI_IS_EXTENDED;
  made.device = &device;
  made.ops.poll_cq = [](ibv_cq* queue, int count, ibv_wc* into) {
    if (VerbsStub::get().is_cleared(VerbsStub::Function::Poll)) std::raise(SIGSEGV);
    return VerbsStub::get().poll(*reinterpret_cast<StubQueue*>(queue), count, into);
  };
  made.ops.post_send = [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** refused) {
    return VerbsStub::get().post(qp, wr, refused);
  };
  made.ops.post_recv = post_receives;
  made.ops.post_srq_recv = [](ibv_srq* queue, ibv_recv_wr* wr, ibv_recv_wr**) {
    VerbsStub::get().post_shared(queue, wr);
    return 0;
  };
  made.ops.alloc_mw = [](ibv_pd* pd, ibv_mw_type) { return VerbsStub::get().make_window(pd); };
  made.ops.dealloc_mw = [](ibv_mw* window) {
    VerbsStub::get().note("ibv_dealloc_mw");
    if (VerbsStub::get().keeps_windows()) return EBUSY;
    VerbsStub::get().destroy_window(window);
    return 0;
  };
  return extended;
}

/// Returns the structure that has this context as its last member.
verbs_context* whole(ibv_context* context) {
  return reinterpret_cast<verbs_context*>(reinterpret_cast<std::byte*>(context) -
                                          offsetof(verbs_context, context));
}

}  // namespace

ibv_context* make_context() {
  auto* const made = new verbs_context(made_context());
  made->context.async_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  return &made->context;
}

void free_context(ibv_context* context) {
  ::close(context->async_fd);
  delete whole(context);
}

void set_driver(std::string_view driver) {
  folder().set_driver(driver);
}

void hide_folder(bool hide) {
  std::strncpy(device.ibdev_path, (folder().shown() + (hide ? "-hidden" : "")).c_str(),
               sizeof device.ibdev_path - 1);
}

void set_transport(ibv_transport_type type) {
  device.transport_type = type;
}

void signal_event(ibv_context* context) {
  ::eventfd_write(context->async_fd, 1);
}

void take_signal(ibv_context* context) {
  eventfd_t count = 0;
  ::eventfd_read(context->async_fd, &count);
}

}  // namespace sluice::rdma::conformance

using sluice::rdma::conformance::VerbsStub;
namespace stub = sluice::rdma::conformance;

constexpr std::uint32_t kMaxWorkRequests = 1 << 14;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  VerbsStub::get().note("ibv_get_device_list");
  *count = VerbsStub::get().devices();
  return stub::devices;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}
ibv_context* ibv_open_device(ibv_device*) {
  VerbsStub::get().note("ibv_open_device");
  errno = VerbsStub::get().open_error();
  if (errno != 0) return nullptr;
  return VerbsStub::get().open();
}
int ibv_close_device(ibv_context* context) {
  VerbsStub::get().note("ibv_close_device");
  VerbsStub::get().close(context);
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  VerbsStub::get().note("ibv_query_device");
  if (VerbsStub::get().is_cleared(VerbsStub::Function::Query)) std::raise(SIGSEGV);
  *attributes = {};
  attributes->node_guid = attributes->sys_image_guid = htobe64(0x02C903FFFE0A1B2C);
  const stub::Provider& provider = VerbsStub::get().provider();
  attributes->max_sge = 16;
  attributes->max_qp = 1 << 16;
  attributes->max_qp_wr = attributes->max_srq_wr = kMaxWorkRequests;
  attributes->max_sge_rd = static_cast<int>(provider.read_sges_reported);
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = provider.max_reads;
  attributes->max_cqe = static_cast<int>(provider.max_completions);
  attributes->max_mw = provider.windows != stub::Provider::Windows::None || provider.flags != 0 ? 1 << 16 : 0;
  attributes->max_mr_size = provider.max_region_bytes;
  attributes->max_srq = provider.shared_receives ? 1 : 0;
  attributes->phys_port_cnt = 1;
  attributes->device_cap_flags = provider.flags;
  return 0;
}
int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* compat) {
  VerbsStub::get().note("ibv_query_port");
  auto& port = *reinterpret_cast<ibv_port_attr*>(compat);
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = IBV_MTU_4096;
  port.max_msg_sz = 1u << 30;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.gid_tbl_len = static_cast<int>(VerbsStub::get().gids() + VerbsStub::get().link_local().size());
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context*, ibv_gid_entry* entries, size_t room, std::uint32_t, size_t) {
  VerbsStub::get().note("ibv_query_gid_table");
  constexpr std::size_t kAddressesOfOctet = 256;
  const std::size_t count = VerbsStub::get().gids();
  const std::size_t first = VerbsStub::get().first_roce_v2();
  const std::vector<std::uint32_t>& interfaces = VerbsStub::get().link_local();
  if (room < count + interfaces.size()) return -EINVAL;
  for (std::size_t i = 0; i < interfaces.size(); ++i) {
    ibv_gid_entry& entry = entries[count + i];
    entry = {};
    entry.gid_index = static_cast<std::uint32_t>(count + i);
    entry.port_num = 1;
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = interfaces[i];
    entry.gid.raw[0] = 0xFE;
    entry.gid.raw[1] = 0x80;
    entry.gid.raw[15] = 1;
  }
  for (std::size_t i = 0; i < count; ++i) {
    entries[i] = {};
    entries[i].gid_index = static_cast<std::uint32_t>(i);
    entries[i].port_num = 1;
    entries[i].gid_type = i < first ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
    const std::size_t host = VerbsStub::get().address() + (i < first ? 0 : i - first);
    const std::uint8_t mapped[] = {0xff,
                                   0xff,
                                   192,
                                   0,
                                   static_cast<std::uint8_t>(2 + host / kAddressesOfOctet),
                                   static_cast<std::uint8_t>(host % kAddressesOfOctet)};
    std::copy(std::begin(mapped), std::end(mapped), entries[i].gid.raw + 10);
  }
  return static_cast<ssize_t>(count + interfaces.size());
}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
  VerbsStub::get().note("ibv_alloc_pd");
  return new ibv_pd{context, 0};
}
int ibv_dealloc_pd(ibv_pd* pd) {
  VerbsStub::get().note("ibv_dealloc_pd");
  VerbsStub::get().forget_domain(pd);
  delete pd;
  return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* at, size_t bytes, int access) {
  VerbsStub::get().note("ibv_reg_mr");
  VerbsStub::get().await_registrations();
  errno = VerbsStub::get().memory_error();
  if (errno != 0) return nullptr;
  return VerbsStub::get().add_region(pd, at, bytes, access);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* at, size_t bytes, std::uint64_t, unsigned access) {
  VerbsStub::get().note("ibv_reg_mr_iova2");
  VerbsStub::get().await_registrations();
  errno = VerbsStub::get().memory_error();
  if (errno != 0) return nullptr;
  return VerbsStub::get().add_region(pd, at, bytes, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr* region) {
  VerbsStub::get().note("ibv_dereg_mr");
  VerbsStub::get().remove_region(region);
  return 0;
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context*) {
  VerbsStub::get().note("ibv_create_comp_channel");
  errno = EOPNOTSUPP;
  return nullptr;
}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  VerbsStub::get().note("ibv_create_cq");
  stub::StubQueue* const made = VerbsStub::get().make_queue(context, static_cast<std::uint32_t>(entries));
  return made != nullptr ? ibv_cq_ex_to_cq(&made->cq) : nullptr;
}
int ibv_destroy_cq(ibv_cq* queue) {
  VerbsStub::get().note("ibv_destroy_cq");
  VerbsStub::get().destroy_queue(queue);
  return 0;
}
ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* wanted) {
  VerbsStub::get().note("ibv_create_srq");
  if (!VerbsStub::get().provider().shared_receives) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (wanted->attr.max_wr > kMaxWorkRequests) {
    errno = EINVAL;
    return nullptr;
  }
  return VerbsStub::get().make_shared(pd);
}
int ibv_destroy_srq(ibv_srq* queue) {
  VerbsStub::get().note("ibv_destroy_srq");
  VerbsStub::get().destroy_shared(queue);
  return 0;
}
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  VerbsStub::get().note("ibv_get_async_event");
  return VerbsStub::get().take_event(context, *event) ? 0 : -1;
}
void ibv_ack_async_event(ibv_async_event* event) {
  VerbsStub::get().note("ibv_ack_async_event");
  VerbsStub::get().acknowledge(*event);
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  VerbsStub::get().note("ibv_create_qp");
  return VerbsStub::get().make(pd, *wanted);
}
int ibv_destroy_qp(ibv_qp* qp) {
  VerbsStub::get().note("ibv_destroy_qp");
  VerbsStub::get().destroy(qp);
  return 0;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  VerbsStub::get().note("ibv_modify_qp");
  VerbsStub::get().modify(*qp, *attributes, mask);
  return 0;
}

}  // extern "C"
