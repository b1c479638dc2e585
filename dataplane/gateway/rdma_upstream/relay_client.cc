// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/rdma_upstream/relay_client.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/call_translation.h"
#include "dataplane/gateway/rdma_upstream/relay.h"

namespace sluice::rdma_upstream {
namespace {

using rdma_server::ClientCall;
using Counter = segment::UpstreamCounter;
using State = RelayCall::State;

}  // namespace

RelayClient::RelayClient(Relay& relay) : relay_(relay), buffers_(relay.server()) {}

// --- Calls

void RelayClient::submit(RelayCall& relayed, service::Client& client) noexcept {
  SLUICE_INVARIANT_DEBUG(client_ == nullptr || client_ == &client, table_index);
  SLUICE_INVARIANT_DEBUG(relayed.client == this && relayed.at_server == nullptr, gateway_state);
  if (client_ == nullptr) {
    client_ = &client;
    relay_.limit_credits(client);
  }
  const rpc::CallHeader& header = relayed.call->header();
  if (!rpc::is_wrapped(header.credential))
    relay_.server().compared().restore(*relayed.binding, header.procedure,
                                       relayed.call->writable_arguments());
  relayed.transition(State::Waiting);
  waiting_.push_back(relayed);
  relay_.count_waiting(1);
  if (waiting_.size() == 1) pump();
}

/// Submits waiting calls in order, as far as resources allow.
void RelayClient::pump() noexcept {
  while (RelayCall* const relayed = waiting_.front()) {
    if (closing_) return;  // finish_closing() resumes
    if (!begin(*relayed)) return wait_for_release();
    waiting_.pop_front();
    relay_.count_waiting(-1);
    if (relayed->state == State::Waiting) lose(*relayed);
  }
}

/// Submits one call. Returns false if no connection, free call or memory is available now. A call that is
/// still Waiting after a return of true can never be sent.
bool RelayClient::begin(RelayCall& relayed) noexcept {
  SLUICE_INVARIANT_DEBUG(relayed.state == State::Waiting && waiting_.front() == &relayed, gateway_state);
  SLUICE_INVARIANT_DEBUG(server_ == nullptr || server_->client() == this, table_index);
  if (server_ == nullptr) server_ = relay_.server().connections().take(*this);
  if (server_ == nullptr || server_->yields()) return wait(Counter::waits_number);
  const auto xid = static_cast<std::uint32_t>(relayed.call->header().xid);
  if (server_->is_outstanding(xid)) return relay_.count(Counter::duplicate_xids), true;
  ClientCall* const call = server_->take_call(xid);
  if (call == nullptr) return wait(Counter::waits_number);
  const rpc::CallHeader& header = relayed.call->header();
  rdma_server::identify(*call, header, relayed.binding);
  call->served = relayed.call;
  if (send(relayed, *call)) return true;
  free(*call);
  return wait(Counter::waits_memory);
}

/// Queues the client for a retry. A client that waits for a connection resumes in on_lent() instead.
void RelayClient::wait_for_release() noexcept {
  if (!wanted_link.linked()) relay_.schedule_resume(*this);
}

bool RelayClient::wait(Counter why) noexcept {
  if (!waiting_link.linked()) relay_.count(why);
  return false;
}

/// Sends a call to the server. Returns false if no memory is available now.
bool RelayClient::send(RelayCall& relayed, ClientCall& call) noexcept {
  service::Call& served = *relayed.call;
  const std::span<std::byte> arguments = served.writable_arguments();
  const std::size_t arguments_at = served.message().size() - arguments.size();
  call.names_items = served.offered_results() > 0;
  switch (rdma_server::submit_call(
      call,
      {.header = served.header(),
       .message = {arguments.data() - arguments_at, served.message().size()},
       .arguments_at = arguments_at,
       .lkey = served.message_lkey(),
       .reply_room = larger_of<std::uint64_t>(served.reply_room(), rpc::kMinReplyBytes)},
      relay_.server(), buffers_)) {
    case rdma_server::Submission::NoMemory:
      return false;
    case rdma_server::Submission::Refused:
      return free(call), true;
    case rdma_server::Submission::Submitted:
    case rdma_server::Submission::Reduced:
      break;
  }
  relayed.at_server = &call;
  relayed.transition(State::Outstanding);
  return true;
}

/// Gives up a call and disconnects the client, which retransmits the call on a new connection. An error reply
/// would be taken for the server's.
void RelayClient::lose(RelayCall& relayed) noexcept {
  relay_.count(client_ != nullptr ? Counter::given_up : Counter::abandoned);
  disconnects_ = client_ != nullptr;
  relayed.transition(State::Lost);
  lost_.push_back(relayed);
  relay_.schedule(*this);
}

// --- Replies

void RelayClient::on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept {
  buffers_.release(call.arguments);
  auto& relayed = call.served->state<RelayCall>();
  SLUICE_INVARIANT_DEBUG(relayed.client == this && relayed.at_server == &call, gateway_state);
  if (rdma_server::is_answer(reply.status())) call.server->note_answer();
  const std::uint64_t took_ns = relay_.server().now_ns() - call.begun_ns;
  relay_.area().upstream_ns.record(took_ns);
  call.served->note_upstream_ns(took_ns);
  switch (reply.status()) {
    case rpcrdma::CallStatus::Ok:
      break;
    case rpcrdma::CallStatus::ChunkError:
    case rpcrdma::CallStatus::Refused:
      relayed.transition(State::None);
      return call.served->complete(rpc::AcceptStat::SystemErr);  // the server's own answer is final (V1-027)
    case rpcrdma::CallStatus::TimedOut:
      relay_.count(Counter::timeouts);
      [[fallthrough]];
    default:
      return lose(relayed);
  }
  relayed.message = buffers_.keep_message(call, reply);
  if (!rdma_server::read_reply(call, reply, relayed.message, relay_.server())) return lose(relayed);
  relay_.count(Counter::replies);
  relayed.transition(State::Held);
  if (!deliver(relayed)) call.served->await_memory();
}

bool RelayClient::deliver(RelayCall& relayed) noexcept {
  SLUICE_INVARIANT_DEBUG(relayed.state == State::Held && relayed.at_server != nullptr, gateway_state);
  ClientCall& at_server = *relayed.at_server;
  service::Call& call = *relayed.call;
  const auto items = std::span(at_server.items).first(at_server.item_count);
  std::size_t results_bytes = xdr::padded(relayed.message.size());
  for (const service::Item& item : items)
    if (!item.placed) results_bytes -= xdr::padded(item.bytes);
  // require_results() counts from the end of the shortest reply header.
  if (!call.require_results(results_bytes - smaller_of(results_bytes, rpc::kMinReplyBytes))) return false;

  call.write_whole_reply();
  const rdma::Lkey placed_lkey = relay_.server().lkey(at_server.reply);
  const rdma::Lkey message_lkey =
      at_server.kept_reply != nullptr ? at_server.server->kept_reply_lkey(at_server.kept_reply) : placed_lkey;
  std::size_t from = xdr::kUnit;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const service::Item& item = items[i];
    SLUICE_INVARIANT_DEBUG(from <= item.offset && item.offset <= relayed.message.size(), buffer_bounds);
    call.results().opaque_fixed(relayed.message.subspan(from, item.offset - from));
    std::byte* const data =
        item.placed ? at_server.reply.address + at_server.chunk_at[i] : relayed.message.data() + item.offset;
    from = item.offset + (item.placed ? 0 : xdr::padded(item.bytes));
    if (item.bytes > 0) call.add_result_piece({data, item.bytes, item.placed ? placed_lkey : message_lkey});
    call.add_result_item(item.bytes);
  }
  call.results().opaque_fixed(relayed.message.subspan(from));
  relayed.transition(State::None);
  call.complete(rpc::AcceptStat::Success);
  return true;
}

void RelayClient::release(RelayCall& relayed) noexcept {
  if (relayed.at_server != nullptr) free(*std::exchange(relayed.at_server, nullptr));
}

void RelayClient::free(ClientCall& call) noexcept {
  SLUICE_INVARIANT_DEBUG(call.server == server_, gateway_state);
  buffers_.release(call.arguments);
  buffers_.release(call.reply);
  call.server->free(call);
}

// --- The client disconnects

/// Cleans up after the client. The requester may be busy with the client's calls, so act() cancels the calls
/// at the server.
void RelayClient::gone() noexcept {
  if (client_ == nullptr) return;
  relay_.forget_credits(*std::exchange(client_, nullptr));
  disconnects_ = false;
  closing_ = cancels_ = true;
  relay_.server().connections().forget(*this);
  while (RelayCall* const relayed = waiting_.pop_front()) {
    relay_.count_waiting(-1);
    lose(*relayed);
  }
  relay_.schedule(*this);
}

void RelayClient::leave() noexcept {
  if (client_ == nullptr) return;
  const bool has_calls = !waiting_.empty() || (server_ != nullptr && server_->in_use() > 0);
  if (has_calls) client_->disconnect();
  gone();
}

void RelayClient::cancel_calls() noexcept {
  relay_.schedule_closing(*this);
  if (server_ == nullptr) return;
  server_->cancel_calls();
  for (ClientCall& call : server_->calls()) {
    if (call.state == ClientCall::State::Free || call.served == nullptr) continue;
    auto& relayed = call.served->state<RelayCall>();
    if (relayed.state == State::Held) lose(relayed);
  }
}

void RelayClient::act() noexcept {
  if (std::exchange(disconnects_, false)) client_->disconnect();
  if (std::exchange(cancels_, false)) cancel_calls();
  while (RelayCall* const relayed = lost_.pop_front()) {
    relayed->transition(State::None);
    static_cast<void>(SLUICE_INVARIANT(relayed->client == this, list_membership));
    relayed->call->complete(rpc::AcceptStat::SystemErr);
  }
}

bool RelayClient::finish_closing() noexcept {
  if (server_ != nullptr && server_->in_use() > 0) return true;
  static_cast<void>(SLUICE_INVARIANT(buffers_.records_held() == 0, pool_balance));
  if (server_ != nullptr) relay_.server().connections().give_back(*std::exchange(server_, nullptr));
  closing_ = false;
  pump();
  return false;
}

// --- The connection to the server

void RelayClient::on_lent(rdma_server::ServerConnection& connection) noexcept {
  static_cast<void>(SLUICE_INVARIANT(server_ == nullptr && connection.client() == this, gateway_state));
  server_ = &connection;
  pump();
}

bool RelayClient::on_taken() noexcept {
  static_cast<void>(SLUICE_INVARIANT(server_ != nullptr && server_->in_use() == 0, gateway_state));
  if (!server_calls_.empty()) return false;
  server_ = nullptr;
  return true;
}

void RelayClient::on_server_call(service::Call& call) noexcept {
  const bool started = client_ != nullptr && server_calls_.start(call, *client_);
  relay_.count(started ? Counter::callbacks : Counter::callbacks_refused);
  if (!started) call.complete(rpc::AcceptStat::SystemErr);
}

}  // namespace sluice::rdma_upstream
