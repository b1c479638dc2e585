// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/rdma_cm_manager.h"

#include <pthread.h>
#include <rdma/rdma_cma.h>

#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "controlplane/cm/id_destroyer.h"

namespace sluice::cm {

std::optional<rdma::CmId> RdmaCmManager::connect(rdma::QueuePair& qp, std::uint16_t port,
                                                 std::span<const std::byte> private_data) noexcept {
  const auto id = manager_.connect({}, server_, port, static_cast<std::uint32_t>(qp.number()), private_data);
  if (!id) return std::nullopt;
  links_[*id] = {.qp = &qp, .port = port, .attributes = {}, .private_data = {}, .answer = {}};
  return static_cast<rdma::CmId>(*id);
}

bool RdmaCmManager::accept(rdma::CmId cm_id, rdma::QueuePair& qp,
                           std::span<const std::byte> private_data) noexcept {
  const auto id = static_cast<Id>(cm_id);
  const auto at = links_.find(id);
  if (at == links_.end()) return false;
  Link& link = at->second;
  link.qp = &qp;
  link.answer.assign(private_data.begin(), private_data.end());
  link.accepts = true;
  link.connecting = qp.connect(link.attributes);
  if (link.connecting) return true;
  links_.erase(at);
  ended_.push_back(id);
  return false;
}

void RdmaCmManager::reject(rdma::CmId id, std::span<const std::byte> private_data) noexcept {
  manager_.reject(static_cast<Id>(id), private_data);
  links_.erase(static_cast<Id>(id));
}

void RdmaCmManager::disconnect(rdma::CmId cm_id) noexcept {
  const auto id = static_cast<Id>(cm_id);
  if (const auto at = links_.find(id); at != links_.end()) at->second.qp = nullptr;
  on_disconnected(id);
  manager_.disconnect(id);
}

std::size_t RdmaCmManager::poll_events(std::span<rdma::CmEvent> events) noexcept {
  manager_.poll();
  std::vector<Id> connected;
  for (const auto& [id, link] : links_)
    if (link.connecting && link.qp->state() != rdma::QueuePair::State::Init) connected.push_back(id);
  for (const Id id : connected) on_connected(id);
  for (const Id id : std::exchange(ended_, {})) manager_.disconnect(id);
  std::size_t count = 0;
  for (; count < events.size() && !events_.empty(); ++count) {
    events[count] = events_.front();
    events_.pop_front();
  }
  return count;
}

void RdmaCmManager::add_event(rdma::CmEventType type, Id id, std::span<const std::byte> private_data) {
  rdma::CmEvent event;
  event.type = type;
  event.id = static_cast<rdma::CmId>(id);
  if (const auto at = links_.find(id); at != links_.end()) {
    event.port = at->second.port;
    event.peer_address = at->second.attributes.remote;
  }
  const std::size_t bytes =
      private_data.size() < rdma::kMaxPrivateData ? private_data.size() : rdma::kMaxPrivateData;
  event.private_data_bytes = static_cast<std::uint8_t>(bytes);
  for (std::size_t i = 0; i < bytes; ++i) event.private_data[i] = private_data[i];
  events_.push_back(event);
}

void RdmaCmManager::on_request(Id id, const RdmaCmPeer& peer) {
  links_[id] = {
      .qp = nullptr, .port = peer.port, .attributes = peer.attributes, .private_data = {}, .answer = {}};
  add_event(rdma::CmEventType::ConnectRequest, id, peer.private_data);
}

void RdmaCmManager::on_reply(Id id, const RdmaCmPeer& peer) {
  Link& link = links_[id];
  link.attributes = peer.attributes;
  link.private_data = peer.private_data;
  link.connecting = link.qp != nullptr && link.qp->connect(peer.attributes);
  if (link.connecting) return;
  on_rejected(id, {}, {});
  ended_.push_back(id);
}

/// Notifies the peer after the device has connected the queue pair, or has failed to.
void RdmaCmManager::on_connected(Id id) {
  Link& link = links_.at(id);
  link.connecting = false;
  const bool up = link.qp->state() == rdma::QueuePair::State::ReadyToSend;
  if (link.accepts) {
    const auto number = static_cast<std::uint32_t>(link.qp->number());
    if (!up || !manager_.accept(id, number, link.answer)) on_disconnected(id);
  } else if (up && manager_.ready(id)) {
    add_event(rdma::CmEventType::Established, id, link.private_data);
  } else {
    on_rejected(id, {}, {});
    ended_.push_back(id);
  }
}

void RdmaCmManager::on_established(Id id) {
  add_event(rdma::CmEventType::Established, id);
}

void RdmaCmManager::on_rejected(Id id, const std::string&, std::span<const std::byte> private_data) {
  add_event(rdma::CmEventType::Rejected, id, private_data);
  links_.erase(id);
}

void RdmaCmManager::on_disconnected(Id id) {
  const auto at = links_.find(id);
  if (at == links_.end()) return;
  if (at->second.qp != nullptr) at->second.qp->to_error();
  add_event(rdma::CmEventType::Disconnected, id);
  links_.erase(at);
  ended_.push_back(id);
}

struct IdDestroyer::Shared {
  void run() {
    std::unique_lock lock(mutex);
    while (!ids.empty()) {
      rdma_cm_id* const id = ids.front();
      lock.unlock();
      rdma_destroy_id(id);
      lock.lock();
      ids.pop_front();
      ++destroyed;
    }
    running = false;
  }
  void start();

  std::thread thread;
  std::mutex mutex;             ///< guards all of the following
  std::deque<rdma_cm_id*> ids;  ///< the first one is being destroyed
  std::uint64_t destroyed = 0;
  bool running = false;  ///< `thread` runs
};

/// Starts the thread if identifiers wait for it. If no thread can be created, a later call tries again.
void IdDestroyer::Shared::start() {
  {
    const std::lock_guard lock(mutex);
    if (running || ids.empty()) return;
    running = true;
  }
  if (thread.joinable()) thread.join();
  try {
    thread = std::thread([this] { run(); });
    ::pthread_setname_np(thread.native_handle(), "cm-destroy");
  } catch (const std::system_error&) {
    const std::lock_guard lock(mutex);
    running = false;
  }
}

IdDestroyer::IdDestroyer() : shared_(make_owned<Shared>()) {}

IdDestroyer::~IdDestroyer() {
  if (shared_->thread.joinable()) shared_->thread.join();
  shared_->run();
}

void IdDestroyer::destroy(rdma_cm_id* id) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ids.push_back(id);
  }
  shared_->start();
}

std::size_t IdDestroyer::stuck(std::uint64_t now_ns) {
  shared_->start();
  const std::lock_guard lock(shared_->mutex);
  if (shared_->ids.empty() || seen_destroyed_ != shared_->destroyed) {
    seen_destroyed_ = shared_->destroyed;
    since_ns_ = now_ns;
    told_ = false;
  }
  if (told_ || now_ns - since_ns_ < kLongNs) return 0;
  told_ = true;
  return shared_->ids.size();
}

}  // namespace sluice::cm
