//! The values that a client returns to its caller: the next action, events, causes of failures, the content of a
//! datagram, counters and times.

use crate::ikev2::configuration::Assigned;
use crate::ikev2::message::ExchangeType;
use crate::ikev2::notify::kind;
use crate::ikev2::route::Path;
use crate::ikev2::signature::Refusal;

/// The caller's next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the datagram in the buffer this way.
    Send(Path),
    /// An event.
    Event(Event),
    /// Wait for a datagram, or until this time, ns.
    Wait(Option<u64>),
}

/// An event of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The gateway answered the first exchange with its keys.
    SaInitAnswered,
    /// Both ends have proven their identities: there is an IKE SA.
    IkeUp,
    /// The gateway assigned addresses.
    AddressAssigned(Assigned),
    /// The gateway assigned no address although one was requested.
    AddressRefused(Cause),
    /// There is a child SA: packets can be sent.
    ChildUp,
    /// There is an IKE SA without a child SA.
    ChildRefused(Cause),
    /// The child SA has new keys.
    ChildRekeyed {
        /// Whether the gateway asked for them.
        by_peer: bool,
    },
    /// The IKE SA has new keys.
    IkeRekeyed {
        /// Whether the gateway asked for them.
        by_peer: bool,
    },
    /// New keys were refused; the old ones remain in use, and they are asked for again.
    RekeyRefused(Cause),
    /// The gateway deleted the only child SA.
    ChildDeleted,
    /// The client's own deletion is over.
    Left {
        /// Whether the gateway has confirmed it.
        is_confirmed: bool,
    },
    /// The attempt, or the IKE SA, is over.
    Failed(Failure),
}

/// Why a client could not connect or lost its SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The cause.
    pub cause: Cause,
    /// Further details; may be empty.
    pub detail: String,
}

/// A cause of a failure, or of a refused part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// No answer to any transmission of a request of this exchange.
    NoAnswer(ExchangeType),
    /// The gateway accepts none of the proposals.
    NoProposalChosen,
    /// The gateway wants a group that is not offered.
    NoCommonGroup,
    /// The gateway refused the client's proof or identity.
    AuthenticationRefused,
    /// The gateway's proof is wrong.
    PeerProofWrong,
    /// The gateway has another identity than the configured one.
    PeerIdentity,
    /// The gateway's certificate or signature is refused.
    PeerCertificate(Refusal),
    /// The gateway supports no signature algorithm of the client's key.
    NoCommonSignature,
    /// The gateway asks for another authentication than the configured one.
    UnexpectedAuthentication,
    /// The user's name or password is refused, or the method is not supported.
    EapRefused,
    /// The gateway has no address left, or assigns none.
    NoAddress,
    /// The gateway requires a request for an address.
    AddressRequestRequired,
    /// The gateway accepts none of the traffic selectors.
    TrafficSelectorsRefused,
    /// The gateway creates no further SA.
    NoAdditionalSas,
    /// The answer chose what was not offered.
    NotOffered,
    /// The gateway sends the client to another gateway, which is not supported.
    Redirected,
    /// The gateway asked for a cookie or another group again and again.
    TooManyRestarts,
    /// The gateway's answer cannot be read.
    Malformed,
    /// The gateway could not read the client's message.
    InvalidSyntax,
    /// The gateway does not know the SA.
    UnknownSa,
    /// The gateway cannot at the moment.
    TemporaryFailure,
    /// The gateway deleted the SA.
    DeletedByPeer,
    /// A library failed.
    Internal,
    /// Another error notification, by its number.
    Notified(u16),
}

impl Cause {
    /// The cause of an error notification.
    #[must_use]
    pub fn of_notification(number: u16) -> Self {
        match number {
            kind::NO_PROPOSAL_CHOSEN => Self::NoProposalChosen,
            kind::INVALID_KE_PAYLOAD => Self::NoCommonGroup,
            kind::AUTHENTICATION_FAILED => Self::AuthenticationRefused,
            kind::INTERNAL_ADDRESS_FAILURE => Self::NoAddress,
            kind::FAILED_CP_REQUIRED => Self::AddressRequestRequired,
            kind::TS_UNACCEPTABLE => Self::TrafficSelectorsRefused,
            kind::NO_ADDITIONAL_SAS => Self::NoAdditionalSas,
            kind::INVALID_SYNTAX | kind::UNSUPPORTED_CRITICAL_PAYLOAD => Self::InvalidSyntax,
            kind::INVALID_SPI | kind::CHILD_SA_NOT_FOUND => Self::UnknownSa,
            kind::TEMPORARY_FAILURE => Self::TemporaryFailure,
            other => Self::Notified(other),
        }
    }

    /// The stable name that it is counted under.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAnswer(ExchangeType::SaInit) => "sa_init_unanswered",
            Self::NoAnswer(ExchangeType::Auth | ExchangeType::Intermediate) => "auth_unanswered",
            Self::NoAnswer(_) => "peer_silent",
            Self::NoProposalChosen => "no_proposal_chosen",
            Self::NoCommonGroup => "no_common_group",
            Self::AuthenticationRefused => "authentication_refused",
            Self::PeerProofWrong => "peer_proof_wrong",
            Self::PeerIdentity => "peer_identity",
            Self::PeerCertificate(Refusal::Missing) => "peer_certificate_missing",
            Self::PeerCertificate(Refusal::UnknownAuthority) => "peer_certificate_unknown_authority",
            Self::PeerCertificate(Refusal::Expired) => "peer_certificate_expired",
            Self::PeerCertificate(Refusal::WrongIdentity) => "peer_certificate_identity",
            Self::PeerCertificate(Refusal::Invalid) => "peer_certificate_invalid",
            Self::PeerCertificate(Refusal::BadSignature) => "peer_signature_wrong",
            Self::PeerCertificate(Refusal::UnsupportedAlgorithm) => "peer_signature_unsupported",
            Self::NoCommonSignature => "no_common_signature",
            Self::UnexpectedAuthentication => "unexpected_authentication",
            Self::EapRefused => "eap_refused",
            Self::NoAddress => "no_pool_address",
            Self::AddressRequestRequired => "address_request_required",
            Self::TrafficSelectorsRefused => "traffic_selectors_refused",
            Self::NoAdditionalSas => "no_additional_sas",
            Self::NotOffered => "answer_not_offered",
            Self::Redirected => "redirected",
            Self::TooManyRestarts => "too_many_restarts",
            Self::Malformed => "answer_malformed",
            Self::InvalidSyntax => "invalid_syntax",
            Self::UnknownSa => "sa_unknown_to_peer",
            Self::TemporaryFailure => "temporary_failure",
            Self::DeletedByPeer => "deleted_by_peer",
            Self::Internal => "internal",
            Self::Notified(_) => "other_notification",
        }
    }
}

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// IP packets that were sealed.
    pub sealed: u64,
    /// ESP packets that were opened, dummies included.
    pub opened: u64,
    /// ESP packets that are repeated or too late.
    pub replayed: u64,
    /// Datagrams that are not authentic, or that belong to no SA here.
    pub rejected: u64,
    /// Datagrams that are repeated messages of IKE.
    pub repeated: u64,
    /// Requests that were sent again.
    pub retransmits: u32,
    /// Cookies that the gateway asked for.
    pub cookies: u32,
    /// Other groups that the gateway asked for.
    pub group_changes: u32,
    /// Requests of the gateway that were answered.
    pub peer_requests: u32,
    /// Keepalives that were sent.
    pub keepalives: u32,
}

/// When a client reached each step, ns; `None` if it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The first message was ready.
    pub started_ns: Option<u64>,
    /// The gateway's keys arrived.
    pub sa_init_answered_ns: Option<u64>,
    /// There is an IKE SA.
    pub ike_up_ns: Option<u64>,
    /// An address was assigned.
    pub ip_assigned_ns: Option<u64>,
    /// There is a child SA.
    pub child_up_ns: Option<u64>,
    /// The first ESP packet of the gateway arrived.
    pub first_packet_ns: Option<u64>,
}
