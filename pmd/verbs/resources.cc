// SPDX-License-Identifier: Apache-2.0
//
// Resources that the driver creates on a device: registered memory and windows, the shared receive queue,
// completion queues.
#include "dataplane/base/invariant.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/completion_queue.h"
#include "pmd/verbs/memory.h"
#include "pmd/verbs/shared_receives.h"

namespace sluice::rdma::verbs {
namespace {

unsigned verbs_access(AccessFlags access) noexcept {
  unsigned flags = 0;
  if (access & kRemoteRead) flags |= IBV_ACCESS_REMOTE_READ;
  if (access & kRemoteWrite) flags |= IBV_ACCESS_REMOTE_WRITE;
  return flags;
}

/// Returns what to do about a refused registration.
const char* remedy_of(int error) noexcept {
  switch (error) {
    case ENOMEM:
    case EAGAIN:
      return "Raise the limit of locked memory (LimitMEMLOCK of the service, or ulimit -l), or lower "
             "[memory] "
             "size_mib.";
    case EPERM:
    case EACCES:
      return "Check the permissions of /dev/infiniband and the capabilities of the process.";
    default:
      return "See the kernel log for the reason of the device's driver.";
  }
}

}  // namespace

MemoryTable::~MemoryTable() {
  detach();
}

// --- Regions

ibv_mr* MemoryTable::register_in(ibv_pd* pd, std::span<std::byte> bytes) const {
  // Relaxed ordering lets data writes overtake each other on the bus. This is safe, because no code reads the
  // data before the completion, which is never reordered. libibverbs omits the flag if the kernel does not
  // support it.
  const int access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING | (windows_possible_ ? IBV_ACCESS_MW_BIND : 0);
  const std::string size = std::to_string(bytes.size() >> 20) + " MiB of memory with the RDMA device (";
  if (max_region_bytes_ != 0 && bytes.size() > max_region_bytes_)
    throw SetupError("Cannot register " + size + "its limit is " + std::to_string(max_region_bytes_ >> 20) +
                     " MiB for each region). Lower [memory] size_mib.");
  ibv_mr* const region = ibv_reg_mr(pd, bytes.data(), bytes.size(), access);
  if (region == nullptr) {
    const int error = errno;
    throw SetupError("Cannot register " + size + std::strerror(error) + "). " + remedy_of(error));
  }
  return region;
}

void MemoryTable::register_all(Domain& domain) {
  static_cast<void>(SLUICE_INVARIANT(domain.pd == nullptr && domain.regions.empty(), queue_pair_state));
  domain.pd = ibv_alloc_pd(pd_->context);
  if (domain.pd == nullptr)
    throw SetupError("The RDMA device cannot allocate a protection domain for an upstream (" +
                     std::string(std::strerror(errno)) + "). Configure fewer upstreams over RDMA.");
  for (const Region& region : regions_) domain.regions.push_back(register_in(domain.pd, region.bytes));
}

ProtectionDomain MemoryTable::add_domain() {
  domains_.emplace_back();
  if (pd_ != nullptr) register_all(domains_.back());
  return static_cast<ProtectionDomain>(domains_.size());
}

MemoryRegion MemoryTable::add(std::span<std::byte> bytes) {
  if (regions_.size() >> kRegionBits != 0) throw SetupError("Too many memory regions on the RDMA device.");
  Region region{.bytes = bytes};
  if (pd_ != nullptr) {
    region.handle = register_in(pd_, bytes);
    region.device_lkey = region.handle->lkey;
    for (Domain& domain : domains_) domain.regions.push_back(register_in(domain.pd, bytes));
  }
  regions_.push_back(region);
  return {bytes, static_cast<Lkey>(tag_ | static_cast<std::uint32_t>(regions_.size() - 1))};
}

MemoryRegion MemoryTable::allocate(std::size_t bytes) {
  return add(pages_.allocate_for_device(bytes, node_).first(bytes));
}

const MemoryTable::Region* MemoryTable::find(Lkey lkey) const noexcept {
  SLUICE_INVARIANT_DEBUG(regions_.size() <= std::size_t{1} << kRegionBits, table_index);
  const std::uint32_t word = static_cast<std::uint32_t>(lkey) ^ tag_;
  return word < regions_.size() ? &regions_[word] : nullptr;
}

bool MemoryTable::covers(const Sge& sge) const noexcept {
  const Region* region = find(sge.lkey);
  if (region == nullptr || sge.address < region->bytes.data()) return false;
  const auto offset = static_cast<std::size_t>(sge.address - region->bytes.data());
  return offset <= region->bytes.size() && sge.length <= region->bytes.size() - offset;
}

// --- Windows

void MemoryTable::make_window(Window& window) {
  window.owner = nullptr;
  window.drawn.reset();
  window.handle = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  if (window.handle == nullptr)
    throw SetupError("The RDMA device cannot allocate more memory windows (" +
                     std::string(std::strerror(errno)) +
                     "). Configure fewer connections or fewer calls per connection.");
  window.rkey = window.handle->rkey;
}

MemoryWindow MemoryTable::allocate_window() {
  if (!windows_possible_)
    throw SetupError(
        "The RDMA device has no type 2 memory windows: it can be used to serve clients, but not as a client. "
        "Use another device for upstreams over RDMA and for sluice-bench, or set window_less in [device]: "
        "\"regions\" registers memory for each call, \"pool\" copies short data through memory that the "
        "server "
        "can always access (security.md says what each exposes).");
  Window window;
  if (pd_ != nullptr) make_window(window);
  windows_.push_back(window);
  index_windows();
  return {static_cast<std::uint32_t>(windows_.size() - 1)};
}

void MemoryTable::index_windows() {
  window_index_.clear();
  for (std::uint32_t i = 0; i < windows_.size(); ++i)
    if (windows_[i].handle != nullptr) window_index_.emplace_back(windows_[i].handle->rkey >> kKeyBits, i);
  std::sort(window_index_.begin(), window_index_.end());
}

MemoryTable::Window* MemoryTable::window_of(std::uint32_t rkey) noexcept {
  const auto at = std::lower_bound(window_index_.begin(), window_index_.end(),
                                   std::pair{rkey >> kKeyBits, std::uint32_t{0}});
  if (at == window_index_.end() || at->first != rkey >> kKeyBits) return nullptr;
  SLUICE_INVARIANT_DEBUG(at->second < windows_.size() && windows_[at->second].handle != nullptr, table_index);
  return &windows_[at->second];
}

/// Draws a random key among those not used since all keys were used, so that an rkey that an earlier peer may
/// have seen is not reused soon.
std::uint32_t MemoryTable::draw_key(Window& window) noexcept {
  const std::uint32_t last = window.rkey & (kKeys - 1);
  if (window.drawn.count() >= kKeys - 1) window.drawn.reset();
  SLUICE_INVARIANT_DEBUG(window.drawn.count() < kKeys, table_index);
  window.drawn.set(last);
  auto key = static_cast<std::uint32_t>(tags_.next() & (kKeys - 1));
  while (window.drawn.test(key)) key = (key + 1) & (kKeys - 1);  // at most kKeys - 1 steps
  window.drawn.set(key);
  return key;
}

std::optional<MemoryTable::Binding> MemoryTable::bind(MemoryWindow window, std::span<std::byte> bytes,
                                                      Lkey lkey, AccessFlags access,
                                                      const QueuePair& owner) noexcept {
  const Region* region = find(lkey);
  if (window.number >= windows_.size() || region == nullptr) return std::nullopt;
  Window& entry = windows_[window.number];
  if (bytes.size() > UINT32_MAX || !covers({bytes.data(), static_cast<std::uint32_t>(bytes.size()), lkey}))
    return std::nullopt;
  if (entry.handle == nullptr || region->handle == nullptr || entry.owner != nullptr) return std::nullopt;
  SLUICE_INVARIANT_DEBUG(region->device_lkey != kNoKey || region->handle->lkey == kNoKey, table_index);
  entry.owner = &owner;
  entry.rkey = (entry.handle->rkey & ~(kKeys - 1)) | draw_key(entry);
  return Binding{.window = entry.handle,
                 .rkey = entry.rkey,
                 .info = {.mr = region->handle,
                          .addr = reinterpret_cast<std::uintptr_t>(bytes.data()),
                          .length = bytes.size(),
                          .mw_access_flags = verbs_access(access)}};
}

void MemoryTable::unbind(std::uint32_t rkey, const QueuePair& owner) noexcept {
  Window* window = window_of(rkey);
  if (window != nullptr && window->owner == &owner && window->rkey == rkey) window->owner = nullptr;
}

bool MemoryTable::bound(std::uint32_t rkey, const QueuePair& owner) const noexcept {
  const Window* window = const_cast<MemoryTable*>(this)->window_of(rkey);
  return window != nullptr && window->owner == &owner && window->rkey == rkey;
}

/// Takes the owner's windows out of use. A bound window can be invalidated only through its queue pair, and
/// not if the queue pair is in Error.
std::vector<MemoryTable::Replacement> MemoryTable::take_bound(const QueuePair& owner) {
  static_cast<void>(SLUICE_INVARIANT(window_index_.size() <= windows_.size(), table_index));
  std::vector<Replacement> taken;
  for (std::uint32_t i = 0; i < windows_.size(); ++i) {
    Window& window = windows_[i];
    if (window.owner != &owner) continue;
    window.owner = nullptr;
    if (window.handle != nullptr) taken.push_back({i, std::exchange(window.handle, nullptr)});
  }
  return taken;
}

void MemoryTable::replace(std::span<const Replacement> windows) {
  for (const Replacement& replacement : windows) {
    if (!SLUICE_INVARIANT(replacement.window < windows_.size(), table_index)) continue;
    Window& window = windows_[replacement.window];
    static_cast<void>(SLUICE_INVARIANT(window.handle == nullptr && window.owner == nullptr, table_index));
    window.handle = replacement.handle;
    window.drawn.reset();
    if (window.handle != nullptr) window.rkey = window.handle->rkey;
  }
  index_windows();
}

// --- Attaching and detaching the device

void MemoryTable::attach(ibv_pd* pd, bool windows, int node, std::uint64_t max_region_bytes) {
  static_cast<void>(SLUICE_INVARIANT(pd_ == nullptr && window_index_.empty(), queue_pair_state));
  pd_ = pd;
  node_ = node;
  windows_possible_ = windows;
  max_region_bytes_ = max_region_bytes;
  try {
    for (Region& region : regions_) {
      region.handle = register_in(pd_, region.bytes);
      region.device_lkey = region.handle->lkey;
    }
    for (Domain& domain : domains_) register_all(domain);
    for (Window& window : windows_) make_window(window);
  } catch (...) {
    detach();
    throw;
  }
  index_windows();
}

void MemoryTable::detach() noexcept {
  for (Window& window : windows_) {
    if (window.handle != nullptr) ibv_dealloc_mw(window.handle);
    window.handle = nullptr;
    window.owner = nullptr;
  }
  for (Region& region : regions_) {
    if (region.handle != nullptr) ibv_dereg_mr(region.handle);
    region.handle = nullptr;
    region.device_lkey = kNoKey;
  }
  for (Domain& domain : domains_) {
    for (ibv_mr* const region : domain.regions) ibv_dereg_mr(region);
    domain.regions.clear();
    if (domain.pd != nullptr) ibv_dealloc_pd(domain.pd);
    domain.pd = nullptr;
  }
  window_index_.clear();
  pd_ = nullptr;
}

// --- Shared receives

SharedReceives::SharedReceives(MemoryTable& memory, ibv_pd* pd, std::uint32_t count, std::uint32_t bytes)
    : memory_(memory), count_(count), bytes_(bytes) {
  make_queue(pd);  // first, so that no memory is allocated if `count` is above the device's limit
  try {
    region_ = memory.allocate(std::size_t{count} * bytes);
  } catch (...) {
    detach();
    throw;
  }
  fill();
}

void SharedReceives::attach(ibv_pd* pd) {
  static_cast<void>(SLUICE_INVARIANT(srq_ == nullptr, queue_pair_state));
  make_queue(pd);
  fill();
}

void SharedReceives::make_queue(ibv_pd* pd) {
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = count_;
  wanted.attr.max_sge = 1;
  srq_ = ibv_create_srq(pd, &wanted);
  if (srq_ != nullptr) return;
  const int failed = errno;
  ibv_device_attr limits{};
  ibv_query_device(pd->context, &limits);
  throw SetupError(
      "The RDMA device " + std::string(ibv_get_device_name(pd->context->device)) +
      " cannot create a shared receive queue with " + std::to_string(count_) + " Receives (" +
      std::strerror(failed) + "; its limit is " + std::to_string(limits.max_srq_wr) +
      "). Lower shared_receives in [device], or set it to 0 for a receive queue per connection.");
}

void SharedReceives::fill() {
  batched_ = 0;
  bool taken = true;
  for (std::uint32_t i = 0; taken && i < count_; ++i) taken = give_back(i);
  if (taken && post()) return;
  const std::string device = ibv_get_device_name(srq_->context->device);
  detach();
  throw SetupError("The RDMA device " + device + " refuses to post Receives. See the kernel log.");
}

void SharedReceives::detach() noexcept {
  if (srq_ != nullptr) ibv_destroy_srq(srq_);
  srq_ = nullptr;
}

bool SharedReceives::give_back(std::uint32_t index) noexcept {
  SLUICE_INVARIANT_DEBUG(index < count_ && batched_ < kBatch, table_index);
  batch_[batched_++] = index;
  return batched_ < kBatch || post();
}

bool SharedReceives::post() noexcept {
  SLUICE_INVARIANT_DEBUG(batched_ <= kBatch, ring_index);
  if (batched_ == 0 || srq_ == nullptr) return true;
  std::array<ibv_recv_wr, kBatch> chain;
  std::array<ibv_sge, kBatch> sges;
  for (std::uint32_t i = 0; i < batched_; ++i) {
    SLUICE_INVARIANT_DEBUG((std::size_t{batch_[i]} + 1) * bytes_ <= region_.bytes.size(), buffer_bounds);
    const std::byte* buffer = region_.bytes.data() + std::size_t{batch_[i]} * bytes_;
    sges[i] = {.addr = reinterpret_cast<std::uintptr_t>(buffer),
               .length = bytes_,
               .lkey = memory_.device_lkey(region_.lkey)};
    chain[i] = {.wr_id = Cookie{.receive = true, .index = batch_[i]}.packed(),
                .next = i + 1 < batched_ ? &chain[i + 1] : nullptr,
                .sg_list = &sges[i],
                .num_sge = 1};
  }
  batched_ = 0;
  ibv_recv_wr* refused = nullptr;
  return ibv_post_srq_recv(srq_, chain.data(), &refused) == 0;
}

// --- Completion queues

namespace {

/// Reports whether the provider has set every function that CompletionQueue::poll_extended() calls.
bool has_functions(const ibv_cq_ex& cq) noexcept {
  return cq.start_poll != nullptr && cq.next_poll != nullptr && cq.end_poll != nullptr &&
         cq.read_opcode != nullptr && cq.read_vendor_err != nullptr && cq.read_byte_len != nullptr &&
         cq.read_imm_data != nullptr && cq.read_qp_num != nullptr && cq.read_wc_flags != nullptr;
}

}  // namespace

Owned<CompletionQueue> CompletionQueue::create(ibv_context* context, ibv_comp_channel* channel,
                                               std::uint32_t entries, bool extended, bool in_software) {
  if (extended) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = entries;
    attributes.channel = channel;
    attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
    // IBV_CREATE_CQ_ATTR_SINGLE_THREADED is not set, because a provider removes the completions of a queue
    // pair that the set-up thread destroys.
    ibv_cq_ex* const cq = ibv_create_cq_ex(context, &attributes);
    if (cq != nullptr && has_functions(*cq))
      return Owned<CompletionQueue>(new CompletionQueue(ibv_cq_ex_to_cq(cq), cq, entries, in_software));
    if (cq != nullptr) ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
  }
  ibv_cq* cq = ibv_create_cq(context, static_cast<int>(entries), nullptr, channel, 0);
  if (cq == nullptr) return nullptr;
  return Owned<CompletionQueue>(new CompletionQueue(cq, nullptr, entries, in_software));
}

CompletionQueue::~CompletionQueue() {
  ibv_destroy_cq(cq_);
}

bool CompletionQueue::take_room(std::uint32_t entries) noexcept {
  static_cast<void>(SLUICE_INVARIANT(left_ <= used_ && used_ <= entries_, ring_index));
  if (entries_ - used_ < entries) return false;
  used_ += entries;
  return true;
}

}  // namespace sluice::rdma::verbs
