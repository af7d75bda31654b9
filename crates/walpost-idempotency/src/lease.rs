//! Claims that are rows: for work that leaves the database.

use futures_util::future::{join, join3};
use tokio_postgres::{Client, GenericClient, Transaction, types::Type};

use crate::{
    Claim, Error, Fingerprint, Idempotency, Lookup, Overtake, Policy, Response, Verdict,
    idempotency::{Parameter, Parts, gone_ms, millis, refused, verdict},
};

/// Somebody else commits under the row that is to be taken over.
const LOCKED: &str = "55P03";

/// A request that is carried out under a lease. Every write under it names its
/// fence: whoever was overtaken is refused by the database.
///
/// Deliberately not `Clone`: the run that ends it, ends it once.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    pub(crate) lookup: Lookup,
    pub(crate) fence: i64,
    pub(crate) recovery_point: Option<String>,
    pub(crate) lease_ms: i64,
    ttl_ms: i64,
    gone_ms: Option<i64>,
}

impl Lease {
    /// Where to go on: the last recovery point of a run before this one, or of
    /// this one.
    pub fn recovery_point(&self) -> Option<&str> {
        self.recovery_point.as_deref()
    }

    /// Raised by each run.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// A key for a call that the handler makes: the same in each run of this
    /// request, as [`Lookup::derived`].
    pub fn key_for(&self, call: &str) -> String {
        self.lookup.derived(call)
    }
}

impl Idempotency {
    /// Claims a request by a committed row under a lease, in a transaction of its
    /// own.
    ///
    /// [`renew`](Self::renew) it before its time is over, do what is done in the
    /// database in transactions that begin with [`hold`](Self::hold) and end with
    /// [`reach`](Self::reach), and end it by [`finish`](Self::finish) or
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// As [`claim`](Self::claim). After [`Error::Unavailable`] there may be a
    /// claim that nobody has: its lease ends by itself.
    pub async fn lease(
        &self,
        client: &mut Client,
        lookup: &Lookup,
        fingerprint: &Fingerprint,
        policy: &Policy,
    ) -> Result<Claim<Lease>, Error> {
        let failed = |error: tokio_postgres::Error| self.failed("claiming a request", &error);
        let tx = self.begin(client).await?;
        let looked = self.look(&tx, lookup, None, policy).await.map_err(failed)?;
        let resumes = match verdict(looked, fingerprint, policy) {
            Verdict::New => false,
            Verdict::TakeOver { .. } => policy.overtake == Overtake::Resume,
            other => {
                tx.rollback().await.map_err(failed)?;
                return Ok(refused(other));
            }
        };
        let taken = self.take(&tx, (lookup, fingerprint), policy, resumes).await;
        let (fence, recovery_point) = match taken {
            Ok(taken) => taken,
            Err(error) if error.code().is_some_and(|state| state.code() == LOCKED) => {
                tx.rollback().await.map_err(failed)?;
                return Ok(Claim::InFlight { retry_after: policy.retry_after });
            }
            Err(error) => return Err(failed(error)),
        };
        tx.commit().await.map_err(failed)?;
        Ok(Claim::New(Lease {
            lookup: *lookup,
            fence,
            recovery_point,
            lease_ms: millis(policy.lease),
            ttl_ms: millis(policy.ttl),
            gone_ms: gone_ms(policy),
        }))
    }

    /// Its fence, and where to go on.
    async fn take(
        &self,
        tx: &Transaction<'_>,
        (lookup, fingerprint): (&Lookup, &Fingerprint),
        policy: &Policy,
        resumes: bool,
    ) -> Result<(i64, Option<String>), tokio_postgres::Error> {
        let (lookup, fingerprint) = (&lookup.as_bytes()[..], &fingerprint.as_bytes()[..]);
        let lease_ms = millis(policy.lease);
        // What an operator has to look at does not leave by itself.
        let ttl_ms = (policy.overtake != Overtake::Refuse).then(|| millis(policy.ttl));
        let parameters: [Parameter<'_>; 6] = [
            (&lookup, Type::BYTEA),
            (&fingerprint, Type::BYTEA),
            (&policy.route, Type::TEXT),
            (&lease_ms, Type::INT8),
            (&ttl_ms, Type::INT8),
            (&resumes, Type::BOOL),
        ];
        let taken = tx.query_typed_one(&self.sql.take, &parameters);
        // The row of a run that nobody ends stays as long as its key is gone.
        let kept = async {
            let Some(gone_ms) = gone_ms(policy) else { return Ok(0) };
            let kept: [Parameter<'_>; 2] = [(&lookup, Type::BYTEA), (&gone_ms, Type::INT8)];
            tx.execute_typed(&self.sql.keep_gone, &kept).await
        };
        // Behind the take: the run that is overtaken may have come further since it was
        // looked at.
        let reached = async {
            if !resumes {
                return Ok(None);
            }
            let of: [Parameter<'_>; 1] = [(&lookup, Type::BYTEA)];
            tx.query_typed_one(&self.sql.recovery_point, &of).await.map(|row| row.get(0))
        };
        let (taken, kept, reached) = join3(taken, kept, reached).await;
        let fence = taken?.get(0);
        kept?;
        Ok((fence, reached?))
    }

    /// Makes the lease last as long again from now.
    ///
    /// # Errors
    /// [`Error::GivenUp`]: somebody else has taken the request over.
    pub async fn renew(&self, client: &Client, lease: &Lease) -> Result<(), Error> {
        const ATTEMPTED: &str = "renewing a lease";
        let lookup = &lease.lookup.as_bytes()[..];
        let parameters: [Parameter<'_>; 3] =
            [(&lookup, Type::BYTEA), (&lease.fence, Type::INT8), (&lease.lease_ms, Type::INT8)];
        let renewed = client.execute_typed(&self.sql.renew, &parameters).await;
        self.one(ATTEMPTED, renewed)
    }

    /// First of a transaction under the lease: nobody takes the request over
    /// before `tx` has ended, and the server ends its session when it is idle for
    /// as long as a lease.
    ///
    /// # Errors
    /// [`Error::GivenUp`]: roll back.
    pub async fn hold(&self, tx: &Transaction<'_>, lease: &Lease) -> Result<(), Error> {
        let lookup = &lease.lookup.as_bytes()[..];
        let parameters: [Parameter<'_>; 3] =
            [(&lookup, Type::BYTEA), (&lease.fence, Type::INT8), (&lease.lease_ms, Type::INT8)];
        let held = tx.query_typed_one(&self.sql.hold, &parameters).await;
        held.map(drop).map_err(|error| self.failed("writing under a lease", &error))
    }

    /// Last of such a transaction: how far the request has come, once it has
    /// committed; none where that is no point to go on from. The lease lasts as
    /// long again from now.
    ///
    /// # Errors
    /// [`Error::GivenUp`] and [`Error::HandlerEnded`]: roll back.
    pub async fn reach(
        &self,
        tx: &Transaction<'_>,
        lease: &Lease,
        recovery_point: Option<&str>,
    ) -> Result<(), Error> {
        let lookup = &lease.lookup.as_bytes()[..];
        let parameters: [Parameter<'_>; 3] =
            [(&lookup, Type::BYTEA), (&lease.fence, Type::INT8), (&recovery_point, Type::TEXT)];
        let lasting: [Parameter<'_>; 3] =
            [(&lookup, Type::BYTEA), (&lease.fence, Type::INT8), (&lease.lease_ms, Type::INT8)];
        let reached = tx.query_typed_one(&self.sql.reach, &parameters);
        let renewed = tx.execute_typed(&self.sql.renew, &lasting);
        let (reached, renewed) = join(reached, renewed).await;
        let failed =
            |error: tokio_postgres::Error| self.failed("reaching a recovery point", &error);
        reached.map_err(failed)?;
        renewed.map(drop).map_err(failed)
    }

    /// Stores the response and ends the lease, on a connection or on a
    /// transaction.
    ///
    /// # Errors
    /// [`Error::GivenUp`]: somebody else carries the request out, and has the
    /// answer.
    pub async fn finish<C: GenericClient>(
        &self,
        client: &C,
        lease: &Lease,
        response: &Response,
    ) -> Result<(), Error> {
        let lookup = &lease.lookup.as_bytes()[..];
        let parts = Parts::of(response);
        let parameters: [Parameter<'_>; 8] = [
            (&lookup, Type::BYTEA),
            (&lease.fence, Type::INT8),
            (&parts.status, Type::INT4),
            (&parts.names, Type::TEXT_ARRAY),
            (&parts.values, Type::BYTEA_ARRAY),
            (&parts.body, Type::BYTEA),
            (&lease.ttl_ms, Type::INT8),
            (&lease.gone_ms, Type::INT8),
        ];
        let finished = client.query_typed(&self.sql.finish, &parameters).await;
        finished.map(drop).map_err(|error| self.failed("storing a response", &error))
    }

    /// Whether the lease has ended with this response.
    #[cfg(feature = "axum")]
    pub(crate) async fn has_finished(
        &self,
        client: &Client,
        lease: &Lease,
        response: &Response,
    ) -> Result<bool, Error> {
        let lookup = &lease.lookup.as_bytes()[..];
        let parts = Parts::of(response);
        let parameters: [Parameter<'_>; 6] = [
            (&lookup, Type::BYTEA),
            (&lease.fence, Type::INT8),
            (&parts.status, Type::INT4),
            (&parts.names, Type::TEXT_ARRAY),
            (&parts.values, Type::BYTEA_ARRAY),
            (&parts.body, Type::BYTEA),
        ];
        let found = client.query_typed(&self.sql.has_finished, &parameters).await;
        let found = found.map_err(|error| self.failed("looking for a response", &error))?;
        Ok(!found.is_empty())
    }

    /// Ends the lease without a response: the next request takes over as the
    /// policy says.
    ///
    /// # Errors
    /// [`Error::GivenUp`]: somebody has already.
    pub async fn release(&self, client: &Client, lease: &Lease) -> Result<(), Error> {
        let lookup = &lease.lookup.as_bytes()[..];
        let parameters: [Parameter<'_>; 2] = [(&lookup, Type::BYTEA), (&lease.fence, Type::INT8)];
        let released = client.execute_typed(&self.sql.release, &parameters).await;
        self.one("releasing a lease", released)
    }

    fn one(
        &self,
        attempted: &'static str,
        changed: Result<u64, tokio_postgres::Error>,
    ) -> Result<(), Error> {
        match changed {
            Ok(0) => Err(Error::GivenUp { attempted }),
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed(attempted, &error)),
        }
    }
}
