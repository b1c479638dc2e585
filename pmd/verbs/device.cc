// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/device.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/base/setup_error.h"

namespace sluice::rdma::verbs {
namespace {

constexpr std::uint32_t kMaxSend = 1u << 20;
constexpr std::uint32_t kMaxWindows = 65536;
constexpr std::size_t kMaxGids = 256;
/// Queue pairs of connections that are ending while their successors are made.
constexpr std::uint32_t kSparePlaces = 16;

struct DeviceList {
  DeviceList() : devices(ibv_get_device_list(&count)) {}
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  int count = 0;
  ibv_device** devices;
};

std::uint16_t bytes_of(ibv_mtu mtu) noexcept {
  return static_cast<std::uint16_t>(128u << std::clamp<unsigned>(mtu, IBV_MTU_256, IBV_MTU_4096));
}

bool is_roce_v2(const ibv_gid_entry& entry, std::uint8_t port) noexcept {
  return entry.port_num == port && entry.gid_type == IBV_GID_TYPE_ROCE_V2;
}

std::vector<ibv_gid_entry> gids_of(ibv_context* context) {
  std::vector<ibv_gid_entry> entries(kMaxGids);
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  entries.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return entries;
}

PeerAddress address_of(const ibv_gid_entry& entry) noexcept {
  PeerAddress address;
  std::memcpy(address.bytes.data(), entry.gid.raw, address.bytes.size());
  return address;
}

bool is_link_local(const PeerAddress& address) noexcept {
  return address.bytes[0] == 0xFE && (address.bytes[1] & 0xC0) == 0x80;
}

/// Routable ones first: what a peer that may be anywhere should be told.
std::vector<PeerAddress> addresses_of(std::span<const ibv_gid_entry> gids, std::uint8_t port) {
  std::vector<PeerAddress> addresses;
  for (const ibv_gid_entry& entry : gids)
    if (is_roce_v2(entry, port)) addresses.push_back(address_of(entry));
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const PeerAddress& a) { return !is_link_local(a); });
  return addresses;
}

constexpr bool has_windows(const ibv_device_attr& attributes) noexcept {
  constexpr unsigned kType2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return (attributes.device_cap_flags & kType2) != 0 && attributes.max_mw > 0;
}
constexpr bool has_remote_invalidation(const ibv_device_attr& attributes) noexcept {
  return (attributes.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
}

constexpr std::string_view kSoftwareProvider = "software";

/// The kernel's driver, to which the link of the device's hardware leads; rxe and its like have no hardware.
std::string provider_of(const ibv_device& device) {
  char target[256];
  const std::string link = std::string(device.ibdev_path) + "/device/driver";
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  const std::string_view path(target, length > 0 ? static_cast<std::size_t>(length) : 0);
  return std::string(path.empty() ? kSoftwareProvider : path.substr(path.rfind('/') + 1));
}

std::string problem_of(const ibv_port_attr& port, bool has_address) {
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return "not Ethernet: Sluice speaks RoCEv2 only";
  if (port.state != IBV_PORT_ACTIVE) return "the port is down: check cable, switch and `ip link`";
  if (!has_address)
    return "no RoCEv2 address: give its network interface an IP address, and check its RoCE mode";
  return {};
}

bool usable(ibv_context* context, std::uint8_t port) {
  ibv_port_attr attributes{};
  if (ibv_query_port(context, port, &attributes) != 0) return false;
  return problem_of(attributes, !addresses_of(gids_of(context), port).empty()).empty();
}

ibv_context* open_by_name(const std::string& wanted, std::uint8_t port) {
  const DeviceList list;
  for (int i = 0; i < list.count; ++i) {
    if (!wanted.empty() && wanted != ibv_get_device_name(list.devices[i])) continue;
    ibv_context* context = ibv_open_device(list.devices[i]);
    if (context == nullptr) continue;
    if (!wanted.empty() || usable(context, port)) return context;
    ibv_close_device(context);
  }
  return nullptr;
}

std::string no_such_device(const std::string& wanted) {
  const std::vector<PortInfo> ports = list_ports();
  if (ports.empty()) return no_devices_hint();
  std::string there;
  for (const PortInfo& port : ports)
    there += (there.empty() ? "" : ", ") + port.device + " port " + std::to_string(port.port) +
             (port.problem.empty() ? "" : " (" + port.problem + ")");
  return (wanted.empty() ? std::string("No RDMA device has a port that Sluice can use")
                         : "There is no RDMA device '" + wanted + "' that can be opened") +
         ". There are: " + there + ". Set devices in [device] of the configuration.";
}

}  // namespace

const char* to_string(Condition condition) noexcept {
  switch (condition) {
    case Condition::Up:
      return "up";
    case Condition::PortDown:
      return "port down";
    case Condition::Gone:
      return "gone";
  }
  return "?";
}

std::string no_devices_hint() {
  return "This machine has no RDMA device that its kernel shows to programs. With an RDMA NIC, load its "
         "driver "
         "and ib_uverbs (`rdma link` and /dev/infiniband show it); without one, set driver = \"softroce\" in "
         "[device], which speaks RoCEv2 over any network card.";
}

std::vector<PortInfo> list_ports() {
  std::vector<PortInfo> ports;
  const DeviceList list;
  for (int i = 0; i < list.count; ++i) {
    ibv_context* context = ibv_open_device(list.devices[i]);
    if (context == nullptr) {
      ports.push_back({.device = ibv_get_device_name(list.devices[i]),
                       .provider = {},
                       .firmware = {},
                       .addresses = {},
                       .problem = std::string("cannot be opened (") + std::strerror(errno) +
                                  "): check the rights on /dev/infiniband"});
      continue;
    }
    ibv_device_attr device{};
    ibv_query_device(context, &device);
    const std::vector<ibv_gid_entry> gids = gids_of(context);
    for (std::uint8_t number = 1; number <= device.phys_port_cnt; ++number) {
      ibv_port_attr port{};
      if (ibv_query_port(context, number, &port) != 0) continue;
      constexpr std::uint32_t kLaneMbps[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
      const std::uint32_t lanes = port.active_width == 1   ? 1
                                  : port.active_width == 2 ? 4
                                  : port.active_width == 4 ? 8
                                  : port.active_width == 8 ? 12
                                                           : 2;
      std::uint32_t speed = 0;
      for (std::uint32_t bit = 0; bit < std::size(kLaneMbps); ++bit)
        if (port.active_speed == 1u << bit) speed = kLaneMbps[bit] * lanes;
      PortInfo info{.device = ibv_get_device_name(list.devices[i]),
                    .provider = {},
                    .firmware = device.fw_ver,
                    .port = number,
                    .active = port.state == IBV_PORT_ACTIVE,
                    .ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET,
                    .active_mtu = bytes_of(port.active_mtu),
                    .speed_mbps = speed,
                    .addresses = addresses_of(gids, number),
                    .max_queue_pairs = static_cast<std::uint32_t>(device.max_qp),
                    .max_work_requests = static_cast<std::uint32_t>(device.max_qp_wr),
                    .max_sge = static_cast<std::uint32_t>(device.max_sge),
                    .max_completions = static_cast<std::uint32_t>(device.max_cqe),
                    .max_reads = static_cast<std::uint32_t>(device.max_qp_rd_atom),
                    .max_region_bytes = device.max_mr_size,
                    .max_windows = static_cast<std::uint32_t>(device.max_mw),
                    .windows = has_windows(device),
                    .remote_invalidation = has_remote_invalidation(device),
                    .problem = {}};
      info.provider = provider_of(*list.devices[i]);
      info.problem = problem_of(port, !info.addresses.empty());
      ports.push_back(std::move(info));
    }
    ibv_close_device(context);
  }
  return ports;
}

std::unique_ptr<Verbs> open(const DeviceConfig& config) {
  return std::make_unique<VerbsDevice>(config);
}

// --- Completions that wait

void CompletionRing::grow(std::size_t capacity) {
  std::vector<WorkCompletion> larger(std::max(capacity, count));
  const std::size_t kept = pop(larger);
  ring = std::move(larger);
  head = 0;
  count = kept;
}

void CompletionRing::push(const WorkCompletion& completion) noexcept {
  ring[(head + count++) % ring.size()] = completion;
}

std::size_t CompletionRing::pop(std::span<WorkCompletion> into) noexcept {
  const std::size_t taken = std::min(count, into.size());
  for (std::size_t i = 0; i < taken; ++i) into[i] = ring[(head + i) % ring.size()];
  if (taken > 0) head = (head + taken) % ring.size();
  count -= taken;
  return taken;
}

void CompletionRing::remove(QueuePairNumber qp) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const WorkCompletion completion = ring[(head + i) % ring.size()];
    if (completion.qp != qp) ring[(head + kept++) % ring.size()] = completion;
  }
  count = kept;
}

// --- Setup

VerbsDevice::VerbsDevice(const DeviceConfig& config)
    : config_(config),
      places_(config.max_queue_pairs + kSparePlaces),
      numbers_(config.max_queue_pairs + kSparePlaces),
      ended_(config.max_queue_pairs + kSparePlaces),
      probed_(config.max_queue_pairs + kSparePlaces) {
  staged_.reserve(places_.size());
  failed_.reserve(places_.size());
  attach();
  if (config_.shared_receives == 0) return;
  try {
    shared_ =
        std::make_unique<SharedReceives>(memory_, pd_, config_.shared_receives, config_.shared_receive_bytes);
  } catch (...) {
    close_context();
    throw;
  }
}

VerbsDevice::~VerbsDevice() {
  const std::lock_guard lock(context_lock_);
  close_context();
}

/// The same when the device has come back as when it was first opened.
void VerbsDevice::attach() {
  context_ = open_by_name(config_.device, config_.port);
  if (context_ == nullptr) throw SetupError(no_such_device(config_.device));
  try {
    if (config_.device.empty()) config_.device = ibv_get_device_name(context_->device);
    // rdma-core 44's rxe loses lists of pieces that come by the extended interface.
    in_software_ = provider_of(*context_->device) == kSoftwareProvider;
    wants_extended_ =
        config_.interface == Interface::Extended || (config_.interface == Interface::Newest && !in_software_);
    if (name_.empty()) name_ = config_.device + "/" + std::to_string(config_.port);
    node_path_ = context_->device->dev_path;
    ibv_port_attr port{};
    if (ibv_query_device(context_, &attributes_) != 0 || ibv_query_port(context_, config_.port, &port) != 0)
      throw SetupError("The RDMA device " + config_.device + " does not tell about its port " +
                       std::to_string(config_.port) + ": see `sluicectl devices`.");
    read_gids();
    if (const std::string problem = problem_of(port, !addresses_.empty()); !problem.empty())
      throw SetupError("The RDMA device " + name_ + " cannot be used: " + problem + ".");
    max_path_mtu_ = bytes_of(port.active_mtu);
    limits_ = {
        .max_queue_pairs = config_.max_queue_pairs,
        .max_send_sge = std::min(kMaxSge, static_cast<std::uint32_t>(std::max(attributes_.max_sge, 1))),
        .max_windows = has_windows(attributes_)
                           ? std::min(kMaxWindows, static_cast<std::uint32_t>(attributes_.max_mw))
                           : 0,
        .max_message_bytes = port.max_msg_sz,
        .max_send_bytes = std::min(kMaxSend, port.max_msg_sz),
        .immediate_data = true,
        .remote_invalidation = has_remote_invalidation(attributes_)};
    pd_ = ibv_alloc_pd(context_);
    if (pd_ == nullptr)
      throw SetupError("The RDMA device " + name_ + " gives no protection domain (" + std::strerror(errno) +
                       ").");
    memory_.attach(pd_, has_windows(attributes_));
    if (shared_) shared_->attach(pd_);
    make_channel();
    const int flags = ::fcntl(context_->async_fd, F_GETFL);
    ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK);
  } catch (...) {
    close_context();
    throw;
  }
  condition_.store(Condition::Up, std::memory_order_relaxed);
}

void VerbsDevice::close_context() noexcept {
  if (context_ == nullptr) return;
  completion_queues_.clear();
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  channel_ = nullptr;
  armed_ = false;
  if (shared_) shared_->detach();
  memory_.detach();
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  pd_ = nullptr;
  ibv_close_device(context_);
  context_ = nullptr;
}

/// Without one the reactor sleeps by time: no reason to refuse a device.
void VerbsDevice::make_channel() noexcept {
  channel_ = ibv_create_comp_channel(context_);
  if (channel_ == nullptr) return;
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK);
}

void VerbsDevice::read_gids() {
  gids_ = gids_of(context_);
  addresses_ = addresses_of(gids_, config_.port);
}

/// The table as it is now: addresses come and go, and a bond that changes its link moves them to other
/// indices.
std::optional<std::uint8_t> VerbsDevice::gid_index(const PeerAddress& local) noexcept {
  if (context_ == nullptr) return std::nullopt;
  try {
    read_gids();
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  for (const ibv_gid_entry& entry : gids_)
    if (is_roce_v2(entry, config_.port) && address_of(entry) == local)
      return static_cast<std::uint8_t>(entry.gid_index);
  return std::nullopt;
}

std::unique_ptr<QueuePair> VerbsDevice::create_queue_pair(const QueuePairLimits& limits) {
  try {
    if (context_ == nullptr)
      throw SetupError("The RDMA device " + name_ + " has been taken away: Sluice waits for it.");
    auto qp = std::make_unique<VerbsQueuePair>(*this, limits);
    numbers_[qp->place()].store(static_cast<std::uint32_t>(qp->number()), std::memory_order_relaxed);
    if (shared_) places_by_number_[static_cast<std::uint32_t>(qp->number())] = qp->place();
    ++statistics_.queue_pairs_made;
    return qp;
  } catch (...) {
    ++statistics_.queue_pairs_refused;
    throw;
  }
}

VerbsDevice::Place& VerbsDevice::take_place(VerbsQueuePair& qp, std::uint16_t& number) {
  const auto free =
      std::find_if(places_.begin(), places_.end(), [](const Place& place) { return place.qp == nullptr; });
  if (free == places_.end())
    throw SetupError("All " + std::to_string(places_.size()) + " queue pairs of the RDMA device " + name_ +
                     " are in use: raise [transport] max_connections.");
  free->qp = &qp;
  free->generation = static_cast<std::uint16_t>((free->generation + 1) % Cookie::kGenerations);
  number = static_cast<std::uint16_t>(free - places_.begin());
  ended_[number].store(0, std::memory_order_relaxed);
  return *free;
}

void VerbsDevice::leave_place(VerbsQueuePair& qp) noexcept {
  places_[qp.place()].qp = nullptr;
  numbers_[qp.place()].store(0, std::memory_order_relaxed);
  std::erase(failed_, &qp);
}

/// Twice: what is outstanding may be flushed while what was flushed before still waits.
void VerbsDevice::add_depth(std::size_t depth) {
  depth_ += depth;
  if (flushed_.ring.size() < 2 * depth_) flushed_.grow(2 * depth_);
}

CompletionQueue& VerbsDevice::completion_queue(std::uint32_t entries) {
  for (const auto& queue : completion_queues_)
    if (queue->take_room(entries)) return *queue;
  // As many as the device makes at a time, so that there are few to poll. All shared Receives may complete in
  // any one of them.
  const auto most = static_cast<std::uint32_t>(std::max(attributes_.max_cqe, 1));
  const std::uint32_t shared = shared_ ? shared_->count() : 0;
  const std::uint64_t all = std::uint64_t{entries} * places_.size() + shared;
  const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(all, most));
  auto queue = entries + shared <= size
                   ? CompletionQueue::create(context_, channel_, size, wants_extended_, in_software_)
                   : nullptr;
  if (queue == nullptr || !queue->take_room(entries + shared))
    throw SetupError("The RDMA device " + name_ + " makes no completion queue with " +
                     std::to_string(entries + shared) + " entries (it has " + std::to_string(most) +
                     "): make [transport] credits smaller.");
  extended_polling_ = queue->extended();
  completion_queues_.push_back(std::move(queue));
  armed_ = false;
  return *completion_queues_.back();
}

void VerbsDevice::remove_staged(VerbsQueuePair& qp) noexcept {
  std::erase(staged_, &qp);
}

// --- The reactor

void VerbsDevice::complete(const WorkCompletion& completion) noexcept {
  if (room_used_ < room_.size() && flushed_.empty())
    room_[room_used_++] = completion;
  else
    flushed_.push(completion);
}

std::size_t VerbsDevice::poll(std::span<WorkCompletion> completions) noexcept {
  if (request_.load(std::memory_order_relaxed) != Request::None) [[unlikely]]
    carry_out();
  while (!staged_.empty()) staged_.back()->ring_doorbell();
  std::size_t waiting = 0;
  if (!flushed_.empty()) [[unlikely]]
    waiting = flushed_.pop(completions);
  room_ = completions.subspan(waiting);
  room_used_ = 0;
  const std::size_t queues = completion_queues_.size();
  for (std::size_t i = 0; i < queues && room_used_ < room_.size(); ++i) {
    if (++next_queue_ >= queues) next_queue_ = 0;
    statistics_.work_completions += completion_queues_[next_queue_]->poll(
        room_.size() - room_used_,
        [this](const Completion& completion) noexcept { on_completion(completion); });
  }
  if (shared_ && !shared_->post()) [[unlikely]]
    request(Request::Detach);
  const std::size_t count = waiting + room_used_;
  room_ = {};
  room_used_ = 0;
  while (!failed_.empty()) {
    VerbsQueuePair* const qp = failed_.back();
    failed_.pop_back();
    qp->enter_error();
  }
  return count;
}

void VerbsDevice::on_completion(const Completion& completion) noexcept {
  const Cookie cookie = Cookie::unpacked(completion.wr_id);
  if (shared_ && cookie.receive) return on_shared_receive(cookie.index, completion);
  const bool known = cookie.place < places_.size() && places_[cookie.place].qp != nullptr &&
                     places_[cookie.place].generation == cookie.generation;
  if (known)
    places_[cookie.place].qp->on_completion(cookie, completion);
  else
    ++statistics_.stale_completions;
}

void VerbsDevice::on_shared_receive(std::uint32_t index, const Completion& completion) noexcept {
  const auto place = places_by_number_.find(completion.queue_pair);
  if (place == places_by_number_.end()) {
    ++statistics_.stale_completions;
  } else {
    const std::uint32_t length =
        completion.status == IBV_WC_SUCCESS && completion.in_receive ? completion.byte_len : 0;
    places_[place->second].qp->on_shared_receive(completion, shared_->message(index, length));
  }
  if (!shared_->give_back(index)) request(Request::Detach);
}

void VerbsDevice::take_completions_of(VerbsQueuePair& qp, CompletionQueue& queue) noexcept {
  if (!shared_) return;
  // As many as it may hold at most.
  queue.poll(queue.entries(), [this](const Completion& completion) noexcept { on_completion(completion); });
  places_by_number_.erase(static_cast<std::uint32_t>(qp.number()));
}

/// Armed first, and then polled once more by the caller: what came in between is not slept on.
void VerbsDevice::wait(std::uint64_t limit_ns) noexcept {
  if (channel_ == nullptr) return Device::wait(limit_ns);
  if (!armed_) {
    armed_ = std::all_of(completion_queues_.begin(), completion_queues_.end(),
                         [](const auto& queue) { return queue->arm(); });
    if (!armed_) Device::wait(limit_ns);
    return;
  }
  ++statistics_.waits;
  pollfd ready{.fd = channel_->fd, .events = POLLIN, .revents = 0};
  const timespec limit{0, static_cast<long>(std::min<std::uint64_t>(limit_ns, 999'999'999))};
  if (::ppoll(&ready, 1, &limit, nullptr) <= 0) return;
  ++statistics_.wakeups;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  for (std::size_t i = 0; i < completion_queues_.size(); ++i)
    if (ibv_get_cq_event(channel_, &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
  armed_ = false;
}

/// What the thread that looks has found. It never waits for that thread.
void VerbsDevice::carry_out() noexcept {
  const std::unique_lock lock(context_lock_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const Request wanted = request_.exchange(Request::None, std::memory_order_acquire);
  switch (wanted) {
    case Request::None:
      return;
    case Request::LookAtQueuePairs:
      for (std::size_t i = 0; i < places_.size(); ++i) {
        const std::uint32_t ended = ended_[i].exchange(0, std::memory_order_relaxed);
        const std::uint32_t probed = probed_[i].exchange(0, std::memory_order_relaxed);
        VerbsQueuePair* const qp = places_[i].qp;
        const std::uint32_t number = qp != nullptr ? static_cast<std::uint32_t>(qp->number()) : 0;
        if (number != 0 && ended == number) qp->to_error();
        if (number != 0 && probed == number) qp->probe();
      }
      return;
    case Request::Detach:
      return detach();
    case Request::Attach:
      try {
        attach();
        ++statistics_.device_returned;
      } catch (const std::exception&) {
        // The next look asks again.
      }
      return;
  }
}

void VerbsDevice::detach() noexcept {
  if (context_ == nullptr) return;
  ++statistics_.device_lost;
  for (Place& place : places_)
    if (place.qp != nullptr) place.qp->lose();
  close_context();
  condition_.store(Condition::Gone, std::memory_order_relaxed);
}

// --- The thread that looks

void VerbsDevice::request(Request wanted) noexcept {
  // Going outranks everything else; what is left undone for it has no meaning any more.
  Request known = request_.load(std::memory_order_relaxed);
  while (known != Request::Detach &&
         !request_.compare_exchange_weak(known, wanted, std::memory_order_release)) {
  }
}

/// The kernel takes the device's node away first, and then waits until nobody has it open.
bool VerbsDevice::is_present() const noexcept {
  return ::access(node_path_.c_str(), F_OK) == 0;
}

void VerbsDevice::look() noexcept {
  const std::unique_lock lock(context_lock_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (context_ == nullptr) {
    ibv_context* const found = open_by_name(config_.device, config_.port);
    if (found == nullptr) return;
    if (usable(found, config_.port)) request(Request::Attach);
    ibv_close_device(found);
    return;
  }
  for (std::size_t i = 0; i < kEventsPerLook; ++i) {
    pollfd ready{.fd = context_->async_fd, .events = POLLIN, .revents = 0};
    ibv_async_event event;
    if (::poll(&ready, 1, 0) <= 0 || ibv_get_async_event(context_, &event) != 0) break;
    on_event(event);
    ibv_ack_async_event(&event);
  }
  if (!is_present()) request(Request::Detach);
}

void VerbsDevice::probe(QueuePairNumber number) noexcept {
  for (std::size_t i = 0; i < numbers_.size(); ++i)
    if (numbers_[i].load(std::memory_order_relaxed) == static_cast<std::uint32_t>(number)) {
      probed_[i].store(static_cast<std::uint32_t>(number), std::memory_order_relaxed);
      request(Request::LookAtQueuePairs);
    }
}

void VerbsDevice::on_event(const ibv_async_event& event) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      ++queue_pair_events_;
      // The queue pair cannot go before its event is acknowledged.
      ended_[static_cast<VerbsQueuePair*>(event.element.qp->qp_context)->place()].store(
          event.element.qp->qp_num, std::memory_order_relaxed);
      return request(Request::LookAtQueuePairs);
    case IBV_EVENT_CQ_ERR:  // its queue pairs cannot be told from those of others: all start anew
      ++overruns_;
      return request(Request::Detach);
    case IBV_EVENT_DEVICE_FATAL:
      return request(Request::Detach);
    case IBV_EVENT_PORT_ERR:
      if (event.element.port_num != config_.port) return;
      ++port_down_;
      return condition_.store(Condition::PortDown, std::memory_order_relaxed);
    case IBV_EVENT_PORT_ACTIVE:
      if (event.element.port_num != config_.port) return;
      ++port_up_;
      return condition_.store(Condition::Up, std::memory_order_relaxed);
    default:
      return;
  }
}

Statistics VerbsDevice::statistics() const noexcept {
  Statistics all = statistics_;
  all.queue_pair_events = queue_pair_events_.load(std::memory_order_relaxed);
  all.completion_queue_overruns = overruns_.load(std::memory_order_relaxed);
  all.port_down = port_down_.load(std::memory_order_relaxed);
  all.port_up = port_up_.load(std::memory_order_relaxed);
  return all;
}

std::size_t VerbsDevice::read_statistics(std::span<std::uint64_t> values) const noexcept {
  const Statistics all = statistics();
  const std::uint64_t list[] = {
#define SLUICE_VERBS_VALUE(name, help) all.name,
      SLUICE_VERBS_STATISTICS(SLUICE_VERBS_VALUE)
#undef SLUICE_VERBS_VALUE
  };
  const std::size_t count = std::min(std::size(list), values.size());
  std::copy_n(list, count, values.begin());
  return count;
}

}  // namespace sluice::rdma::verbs
