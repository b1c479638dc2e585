// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_table.h"

namespace sluice::reactor {

ConnectionRecord& ConnectionTable::begin(const rpcrdma::Connection& connection,
                                         const ConnectionRecord& record) noexcept {
  // Counted before it is shown: a data plane that dies in between has skipped one.
  std::uint32_t incarnation = incarnations_.load(std::memory_order_relaxed) + 1;
  if (incarnation == 0) incarnation = 1;
  incarnations_.store(incarnation, std::memory_order_relaxed);
  ConnectionRecord& begun = this->record(connection);
  begun = record;
  begun.incarnation = incarnation;
  return begun;
}

rpcrdma::Connection* ConnectionTable::find(rdma::CmId id) noexcept {
  for (std::uint16_t i = 0; i < size(); ++i)
    if (records_[i].cm_id == id && engine_.connection(i).is_open()) return &engine_.connection(i);
  return nullptr;
}

rpcrdma::Connection* ConnectionTable::find_number(std::uint32_t number) noexcept {
  if (number >= records_.size()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
  return connection.is_open() ? &connection : nullptr;
}

rpcrdma::Connection* ConnectionTable::find(std::uint32_t number, std::uint32_t incarnation) noexcept {
  rpcrdma::Connection* const connection = find_number(number);
  return connection != nullptr && records_[number].incarnation == incarnation ? connection : nullptr;
}

rpcrdma::Connection* ConnectionTable::find_dialed(std::uint32_t number, std::uint32_t queue_pair) noexcept {
  if (number >= records_.size()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
  const ConnectionRecord& record = records_[number];
  const bool same = record.outgoing && !record.established && record.queue_pair == queue_pair;
  return connection.is_open() && same ? &connection : nullptr;
}

}  // namespace sluice::reactor
