// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/rdma_cm.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "controlplane/cm/id_destroyer.h"
#include "controlplane/cm/random_numbers.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/sockets.h"

namespace sluice::cm {
namespace {

constexpr int kBacklog = 128;
constexpr int kResolveMs = 2000;
constexpr std::uint8_t kMaxReads = 16;
constexpr std::uint8_t kRetries = 6;  // with 7, Linux's rxe retries forever
constexpr std::uint8_t kRnrForEver = 7;
constexpr std::uint8_t kAckTimeout = 17;  // 0.5 s; a silent peer is detected after 3.8 s
constexpr std::uint32_t kEventsPerPoll = 64;

PeerAddress address_of(const sockaddr* from) {
  sockaddr_storage address{};
  const bool six = from->sa_family == AF_INET6;
  if (!six && from->sa_family != AF_INET) return {};
  std::memcpy(&address, from, six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return peer_address(address);
}

/// Returns the address to connect from. A link-local address gets the zone of `remote`, because the kernel
/// requires one. Without a zone, the kernel chooses the address.
PeerAddress source_for(PeerAddress local, const PeerAddress& remote) noexcept {
  if (!is_link_local(local)) return local;
  local.zone = remote.zone;
  return local.zone != 0 ? local : PeerAddress{};
}

constexpr std::uint16_t bytes_of(ibv_mtu mtu) {
  return static_cast<std::uint16_t>(128u << mtu);
}

constexpr std::uint8_t smaller(std::uint8_t a, std::uint8_t b) {
  return a < b ? a : b;
}

constexpr std::uint8_t reads_of(int limit) {
  return limit < 0 ? std::uint8_t{0} : limit < kMaxReads ? static_cast<std::uint8_t>(limit) : kMaxReads;
}

}  // namespace

RdmaCm::Channel::Channel() : channel_(rdma_create_event_channel()) {
  if (channel_ == nullptr)
    throw SetupError("The kernel's RDMA connection management cannot be used (" +
                     std::string(std::strerror(errno)) +
                     "). Load rdma_ucm, and check the rights on /dev/infiniband/rdma_cm. On a machine "
                     "without an RDMA NIC set driver = \"softroce\" in [device].");
  ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
}

RdmaCm::RdmaCm(Host& host, const RdmaCmOptions& options)
    : host_(host), options_(options), next_id_(static_cast<std::uint32_t>(RandomNumbers().next())) {}

RdmaCm::~RdmaCm() {
  // Connections on the kept channel persist while another process has it open, and end otherwise.
  for (const auto& [id, entry] : entries_)
    if (entry.stage < Stage::Accepted) destroyer_.destroy(entry.id);
  for (rdma_cm_id* const listener : listeners_) destroyer_.destroy(listener);
}

bool RdmaCm::keep(const Entry& entry) {
  return rdma_migrate_id(entry.id, kept_.get()) == 0;
}

void RdmaCm::listen(std::uint16_t port) {
  const auto fail = [port](const char* what) -> SetupError {
    return SetupError(
        "Cannot listen for RDMA connections on port " + std::to_string(port) + " (" + what + ": " +
        std::strerror(errno) +
        "). Check with `rdma resource show cm_id` whether another server uses it, such as the kernel's.");
  };
  rdma_cm_id* listener = nullptr;
  if (rdma_create_id(channel_.get(), &listener, nullptr, RDMA_PS_TCP) != 0) throw fail("no identifier");
  std::unique_ptr<rdma_cm_id, decltype(&rdma_destroy_id)> made(listener, &rdma_destroy_id);
  set_type_of_service(listener);
  sockaddr_storage any{};
  any.ss_family = AF_INET6;
  reinterpret_cast<sockaddr_in6*>(&any)->sin6_port = htons(port);
  if (rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&any)) != 0) throw fail("bind");
  if (rdma_listen(listener, kBacklog) != 0) throw fail("listen");
  listeners_.push_back(made.release());
}

void RdmaCm::set_type_of_service(rdma_cm_id* id) {
  std::uint8_t tos = options_.traffic_class;
  if (tos != 0) rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos);
}

/// Returns an unused id. Ids start from a random number, so that they differ from the ids of a previous
/// control plane in the connection table.
Id RdmaCm::next_id() {
  do {
    ++next_id_;
  } while (next_id_ == 0 || entries_.count(static_cast<Id>(next_id_)) != 0);
  return static_cast<Id>(next_id_);
}

void RdmaCm::erase(Id id) {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return;
  destroyer_.destroy(at->second.id);
  entries_.erase(at);
}

std::optional<Id> RdmaCm::connect(const PeerAddress& local, const PeerAddress& remote, std::uint16_t port,
                                  std::uint32_t queue_pair, std::span<const std::byte> private_data) {
  Entry entry{.stage = Stage::Resolving,
              .passive = false,
              .queue_pair = queue_pair,
              .private_data = {private_data.begin(), private_data.end()}};
  const Id id = next_id();
  if (rdma_create_id(channel_.get(), &entry.id, reinterpret_cast<void*>(static_cast<std::uintptr_t>(id)),
                     RDMA_PS_TCP) != 0)
    return std::nullopt;
  set_type_of_service(entry.id);
  sockaddr_storage from;
  sockaddr_storage to;
  const PeerAddress source = source_for(local, remote);
  socket_address(source, 0, from);
  socket_address(remote, port, to);
  const bool any = source == PeerAddress{};
  if (rdma_resolve_addr(entry.id, any ? nullptr : reinterpret_cast<sockaddr*>(&from),
                        reinterpret_cast<sockaddr*>(&to), kResolveMs) != 0) {
    destroyer_.destroy(entry.id);
    return std::nullopt;
  }
  entries_[id] = std::move(entry);
  return id;
}

rdma_conn_param RdmaCm::parameters_of(const Entry& entry) const {
  rdma_conn_param parameters{};
  parameters.private_data = entry.private_data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(entry.private_data.size());
  parameters.responder_resources = entry.responder_resources;
  parameters.initiator_depth = entry.initiator_depth;
  parameters.flow_control = 1;
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kRnrForEver;
  parameters.qp_num = entry.queue_pair;
  return parameters;
}

bool RdmaCm::accept(Id id, std::uint32_t queue_pair, std::span<const std::byte> private_data) {
  const auto at = entries_.find(id);
  if (at == entries_.end() || at->second.stage != Stage::Requested) return false;
  Entry& entry = at->second;
  entry.queue_pair = queue_pair;
  entry.private_data.assign(private_data.begin(), private_data.end());
  rdma_conn_param parameters = parameters_of(entry);
  if (!keep(entry) || rdma_accept(entry.id, &parameters) != 0) {
    erase(id);
    return false;
  }
  ++statistics_.sent;
  entry.stage = Stage::Accepted;
  return true;
}

void RdmaCm::reject(Id id, std::span<const std::byte> private_data) {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return;
  rdma_reject(at->second.id, private_data.data(), static_cast<std::uint8_t>(private_data.size()));
  ++statistics_.sent;
  erase(id);
}

bool RdmaCm::ready(Id id) {
  const auto at = entries_.find(id);
  if (at == entries_.end() || at->second.stage != Stage::Replied) return false;
  if (!keep(at->second) || rdma_establish(at->second.id) != 0) return false;
  at->second.stage = Stage::Established;
  ++statistics_.sent;
  ++statistics_.established;
  return true;
}

void RdmaCm::packet_arrived(Id id) {
  const auto at = entries_.find(id);
  if (at != entries_.end() && at->second.stage == Stage::Accepted)
    rdma_notify(at->second.id, IBV_EVENT_COMM_EST);
}

void RdmaCm::disconnect(Id id) {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return;
  if (at->second.stage >= Stage::Accepted) {
    rdma_disconnect(at->second.id);
    ++statistics_.sent;
    ++statistics_.ended;
  }
  erase(id);
}

bool RdmaCm::poll() {
  const bool any = poll(*channel_.get());
  return poll(*kept_.get()) || any;
}

bool RdmaCm::poll(rdma_event_channel& channel) {
  bool any = false;
  for (std::uint32_t i = 0; i < kEventsPerPoll; ++i) {
    rdma_cm_event* from = nullptr;
    if (rdma_get_cm_event(&channel, &from) != 0) break;
    any = true;
    ++statistics_.received;
    Event event{.type = from->event, .status = from->status, .private_data = {}};
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST)
      event.request = from->id;
    else
      event.id = static_cast<Id>(reinterpret_cast<std::uintptr_t>(from->id->context));
    event.parameters = from->param.conn;
    const auto* bytes = static_cast<const std::byte*>(from->param.conn.private_data);
    if (bytes != nullptr && from->event <= RDMA_CM_EVENT_DISCONNECTED)
      event.private_data.assign(bytes, bytes + from->param.conn.private_data_len);
    // An rdma_cm_id exists until its events are acknowledged, and may be destroyed afterwards.
    rdma_ack_cm_event(from);
    handle(event);
  }
  return any;
}

void RdmaCm::handle(const Event& event) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event);
  const Id id = event.id;
  const auto at = entries_.find(id);
  if (at == entries_.end()) return;
  Entry& entry = at->second;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(entry.id, kResolveMs) != 0) fail(id, std::strerror(errno));
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: {
      const Depths& most = depths_of(entry.id->verbs);
      entry.responder_resources = most.responder_resources;
      entry.initiator_depth = most.initiator_depth;
      rdma_conn_param parameters = parameters_of(entry);
      if (rdma_connect(entry.id, &parameters) != 0) return fail(id, std::strerror(errno));
      ++statistics_.sent;
      entry.stage = Stage::Connecting;
      return;
    }
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return on_response(id, entry, event);
    case RDMA_CM_EVENT_ESTABLISHED:
      if (entry.stage == Stage::Established) return;
      entry.stage = Stage::Established;
      ++statistics_.established;
      return host_.on_established(id);
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      return fail(id, std::string(rdma_event_str(event.type)) + ", status " + std::to_string(event.status),
                  event.private_data);
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return host_.on_disconnected(id);
    default:
      return;
  }
}

void RdmaCm::fail(Id id, const std::string& why, std::span<const std::byte> private_data) {
  ++statistics_.timeouts;
  if (entries_.at(id).passive) return host_.on_disconnected(id);
  erase(id);
  host_.on_rejected(id, why, private_data);
}

bool RdmaCm::device_removed() const {
  for (const std::string& node : device_nodes_)
    if (::access(node.c_str(), F_OK) != 0) return true;
  return false;
}

/// Returns the limits that are offered to peers of this device. The default is kMaxReads, if the device
/// cannot be queried.
const RdmaCm::Depths& RdmaCm::depths_of(ibv_context* device) {
  const auto [at, is_new] = depths_.try_emplace(device);
  if (!is_new) return at->second;
  ibv_device_attr attributes{};
  const bool known = ibv_query_device(device, &attributes) == 0;
  at->second = {.responder_resources = known ? reads_of(attributes.max_qp_rd_atom) : kMaxReads,
                .initiator_depth = known ? reads_of(attributes.max_qp_init_rd_atom) : kMaxReads};
  return at->second;
}

/// Reads the attributes of both transitions, to ready-to-receive and to ready-to-send.
std::optional<RdmaCmPeer> RdmaCm::describe(Entry& entry, const Event& event) {
  int mask = 0;
  device_nodes_.insert(entry.id->verbs->device->dev_path);
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  if (rdma_init_qp_attr(entry.id, &receive, &mask) != 0) return std::nullopt;
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  if (rdma_init_qp_attr(entry.id, &send, &mask) != 0) return std::nullopt;
  // The peer's initiator depth is the own responder resources, and vice versa.
  const Depths& most = depths_of(entry.id->verbs);
  entry.responder_resources = smaller(event.parameters.responder_resources, most.responder_resources);
  entry.initiator_depth = smaller(event.parameters.initiator_depth, most.initiator_depth);
  RdmaCmPeer peer{
      .device = ibv_get_device_name(entry.id->verbs->device),
      .device_port = entry.id->port_num,
      .port = ntohs(rdma_get_src_port(entry.id)),
      .attributes = {.local = address_of(rdma_get_local_addr(entry.id)),
                     .remote = address_of(rdma_get_peer_addr(entry.id)),
                     .remote_qp = static_cast<rdma::QueuePairNumber>(receive.dest_qp_num),
                     .send_psn = send.sq_psn,
                     .receive_psn = receive.rq_psn,
                     .path_mtu = bytes_of(receive.path_mtu),
                     .responder_resources = entry.responder_resources,
                     .initiator_depth = entry.initiator_depth,
                     .ack_timeout = kAckTimeout,
                     .retry_count = kRetries,
                     .rnr_retry = kRnrForEver,
                     .service_level = options_.service_level.value_or(receive.ah_attr.sl),
                     .traffic_class = options_.traffic_class != 0 ? options_.traffic_class
                                                                  : receive.ah_attr.grh.traffic_class},
      .private_data = event.private_data};
  return peer;
}

void RdmaCm::on_request(const Event& event) {
  ++statistics_.requests;
  const Id id = next_id();
  event.request->context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(id));
  Entry& entry = entries_[id];
  entry.id = event.request;
  const auto peer = describe(entry, event);
  if (!peer) {
    ++statistics_.refused_parameters;
    host_.on_refused(address_of(rdma_get_peer_addr(entry.id)));
    return reject(id, {});
  }
  host_.on_request(id, *peer);
}

void RdmaCm::on_response(Id id, Entry& entry, const Event& event) {
  const auto peer = describe(entry, event);
  if (!peer) return fail(id, "the kernel provides no attributes for the queue pair");
  entry.stage = Stage::Replied;
  host_.on_reply(id, *peer);
}

}  // namespace sluice::cm
