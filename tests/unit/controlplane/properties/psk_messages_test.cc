// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/psk.h"

#include <gtest/gtest.h>

#include "tests/unit/controlplane/properties/lab.h"

namespace sluice::properties {
namespace {

Octets client_hello(const std::string& name, std::size_t keys) {
  return encode(ClientHello{.name = name, .nonce = {}, .keys = std::vector<KeyId>(keys, KeyId{})});
}

Octets server_message(const std::string& name, std::uint8_t choice) {
  Octets message = encode(ServerHello{.name = name, .nonce = {}, .choice = choice});
  message.resize(message.size() + kHashBytes);
  return message;
}

Octets longer(Octets message) {
  message.push_back(std::byte{0});
  return message;
}

TEST(PskMessages, a_list_has_one_to_four_identifiers) {
  EXPECT_FALSE(decode_client_hello(client_hello("c", 0)));
  for (std::size_t keys = 1; keys <= 4; ++keys) {
    const auto hello = decode_client_hello(client_hello("c", keys));
    ASSERT_TRUE(hello);
    EXPECT_EQ(hello->keys.size(), keys);
  }
  for (const std::size_t keys : {5, 8, 31, 255}) EXPECT_FALSE(decode_client_hello(client_hello("c", keys)));
}

TEST(PskMessages, a_count_that_does_not_fit_the_list_is_refused) {
  for (std::size_t said = 0; said < 256; ++said) {
    Octets hello = client_hello("c", 2);
    hello[hello.size() - 2 * sizeof(KeyId) - 1] = static_cast<std::byte>(said);
    EXPECT_EQ(decode_client_hello(hello).has_value(), said == 2) << said;
  }
}

TEST(PskMessages, names_have_bounds_and_are_printable) {
  const std::string longest(64, 'n');
  for (const std::string& name : {std::string("c"), std::string("client.example"), longest}) {
    const auto hello = decode_client_hello(client_hello(name, 1));
    ASSERT_TRUE(hello);
    EXPECT_EQ(hello->name, name);
    const auto message = decode_server_message(server_message(name, 0));
    ASSERT_TRUE(message);
    EXPECT_EQ(message->hello.name, name);
  }
  for (const std::string& name :
       {std::string(), longest + "n", std::string(255, 'n'), std::string("a b"), std::string("a\nb"),
        std::string("a\0b", 3), std::string("\x7f"), std::string("\xc3\xa4")}) {
    EXPECT_FALSE(decode_client_hello(client_hello(name, 1))) << name;
    EXPECT_FALSE(decode_server_message(server_message(name, 0))) << name;
  }
}

TEST(PskMessages, a_choice_is_one_of_four) {
  for (unsigned choice = 0; choice < 256; ++choice) {
    const auto message = decode_server_message(server_message("s", static_cast<std::uint8_t>(choice)));
    EXPECT_EQ(message.has_value(), choice < 4) << choice;
    EXPECT_EQ(message ? message->hello.choice : choice, choice);
  }
}

TEST(PskMessages, nothing_may_follow_the_end) {
  EXPECT_FALSE(decode_client_hello(longer(client_hello("c", 1))));
  EXPECT_FALSE(decode_server_message(longer(server_message("s", 0))));
  const Octets finished = encode_client_finished(Hash{});
  EXPECT_TRUE(decode_client_finished(finished));
  EXPECT_FALSE(decode_client_finished(longer(finished)));
}

TEST(PskMessages, no_message_is_taken_for_another) {
  const Octets messages[] = {client_hello("c", 1), server_message("c", 0), encode_client_finished(Hash{})};
  for (std::size_t i = 0; i < std::size(messages); ++i) {
    for (unsigned number = 0; number < 256; ++number) {
      Octets message = messages[i];
      message[4] = static_cast<std::byte>(number);
      EXPECT_EQ(decode_client_hello(message).has_value(), i == 0 && number == 1);
      EXPECT_EQ(decode_server_message(message).has_value(), i == 1 && number == 2);
      EXPECT_EQ(decode_client_finished(message).has_value(), i == 2 && number == 3);
    }
    // The previous method's messages differed only in the last letter of their beginning.
    Octets older = messages[i];
    older[3] = std::byte{'1'};
    EXPECT_FALSE(decode_client_hello(older) || decode_server_message(older) || decode_client_finished(older));
  }
}

}  // namespace
}  // namespace sluice::properties
