// SPDX-License-Identifier: Apache-2.0
//
// simulated_peers SEGMENT COUNT CREDITS: replaces the control plane, and makes a data plane on softroce set
// up COUNT connections to peers that do not exist, each with the connection management state that a control
// plane would have left. Prints the number of connections that were set up as JSON.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "controlplane/cm/agent.h"
#include "dataplane/segment/segment.h"

namespace {

using namespace sluice;

/// Returns an address 10.x.y.z, which is not on the link.
PeerAddress address_of(std::uint32_t peer) {
  return PeerAddress::from_ipv4(10, static_cast<std::uint8_t>(peer >> 16),
                                static_cast<std::uint8_t>(peer >> 8), static_cast<std::uint8_t>(peer));
}

segment::Command connection_to(std::uint32_t peer, const PeerAddress& local, std::uint32_t credits) {
  segment::Command command{.type = segment::CommandType::Accept,
                           .id = peer + 1,
                           .cm_id = peer + 1,
                           .credits = credits,
                           .first_grant = credits,
                           .receive_inline_bytes = 4096,
                           .send_inline_bytes = 4096};
  command.attributes = {.local = local,
                        .remote = address_of(peer),
                        .remote_link = {2, 0, 0, 0, 0, 1},
                        .remote_qp = static_cast<rdma::QueuePairNumber>(0x1000 + peer),
                        .send_psn = 1,
                        .receive_psn = 1,
                        .path_mtu = 1024,
                        .responder_resources = 16,
                        .initiator_depth = 16,
                        .ack_timeout = 17,
                        .retry_count = 7,
                        .rnr_retry = 7};
  const cm::Snapshot snapshot{
      .id = peer + 1,
      .remote_id = peer + 1,
      .transaction_id = peer + 1,
      .local_qpn = 0,
      .remote_qpn = 0x1000 + peer,
      .endpoint = {.local = local, .remote = address_of(peer), .link = {2, 0, 0, 0, 0, 1}}};
  std::memcpy(command.cm_state.data(), &snapshot, sizeof snapshot);
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "simulated_peers SEGMENT COUNT CREDITS\n"), 2;
  const auto count = static_cast<std::uint32_t>(std::atoi(argv[2]));
  const auto segment = segment::Segment::open_or_create(argv[1]);
  segment::Layout& layout = segment->layout();
  const auto config = layout.config.read_copy();
  if (!config || config->address_count == 0)
    return std::fprintf(stderr, "The segment has no softroce configuration.\n"), 1;
  segment::ReactorArea& area = layout.reactors[0];
  std::uint32_t asked = 0;
  std::uint32_t made = 0;
  std::uint32_t answered = 0;
  for (int idle_ms = 0; answered < count && idle_ms < 20000;) {
    bool any = false;
    while (asked < count && area.commands.push(connection_to(asked, config->addresses[0].address,
                                                             static_cast<std::uint32_t>(std::atoi(argv[3])))))
      any = true, ++asked;
    segment::Event event;
    while (area.events.pop(event)) {
      any = true;
      if (event.type != segment::EventType::CommandDone) continue;
      ++answered;
      if (event.status != segment::CommandStatus::Done) continue;
      ++made;
      segment::DesiredStateWriter(area.wanted).established(event.connection, event.incarnation);
    }
    idle_ms = any ? 0 : idle_ms + 1;
    if (!any) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::printf("{\"made\": %u}\n", made);
  return made == count ? 0 : 1;
}
