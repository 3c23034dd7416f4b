//! `select!` and `select_async!`: both have the same grammar, which `__select_arm!` munches. `__select_emit!` makes the
//! code.

/// Does the first of several cases that is ready (a send, a receive or a future), and then evaluates the arm of that
/// case. Go's `select`.
///
/// | arm | the arm is ready when | the value of the pattern |
/// |---|---|---|
/// | `recv(rx) -> value => arm` | a value is there, or a sender waits, or the channel is closed; or the timer has fired | the result of `rx.recv()` |
/// | `send(tx, value) -> result => arm` | there is room, or a receiver waits, or the channel is closed | the result of `tx.send(value)`, or its panic |
/// | `send_from(tx, &mut option) -> result => arm` | the same, and the option has a value. The value is taken out of the option only if this arm is chosen | the same |
/// | `future(f) -> output => arm` | the future is ready, for example of a lock, a permit, a wait group, a context, a join handle, a task's call | the future's output |
/// | `default => arm` | no other arm is ready, at this instant | |
/// | `default(limit) -> why => arm` | no other arm becomes ready before the limit: a `Duration`, an `Instant`, a `&Context`, or another [`IntoLimit`](crate::sema::IntoLimit) | the limit's error |
///
/// `-> pattern` may be left out. `rx` is any [`RecvArm`](crate::chan::RecvArm): the receiving handle of a channel, a
/// timer or a ticker; `tx` is any [`SendPort`](crate::chan::SendPort). Both may be values or references; an arm whose
/// channel is nil, or `None`, is never ready.
///
/// As in Go, the channels and values are evaluated once, in the order of the source, whichever arm is chosen. If
/// several arms are ready, each is chosen with the same probability. Without a `default` the select waits. A select
/// without arms waits for ever. Unlike in Go, a value that is not sent is dropped; `send_from` leaves an unsent value
/// in its option.
///
/// A future is polled in place, and dropped before an arm is evaluated, so that its unfinished work is undone. To
/// continue the future later, keep the future pinned and pass `future(&mut pinned)`. The select polls a future only
/// while the select is in no channel's queue: so no other case is done at the same time, and the future's output is not
/// lost. Therefore, each time a future wakes the select but is not ready, the select loses its places in the channels'
/// queues. With a `default`, each future is polled once.
///
/// The arms are evaluated after the select, at the position of the macro: they may `return`, `break` and `continue`,
/// and use the values that the select has used.
///
/// A select may have some 90 arms. A crate with larger selects raises its `recursion_limit`, or uses a
/// [`Select`](crate::chan::Select).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sudog::chan::{Chan, channel, select};
///
/// let (numbers, quit) = (Chan::new(1), Chan::<()>::new(0));
/// numbers.send(1);
/// let got = select! {
///     recv(numbers) -> n => n,
///     recv(quit) => None,
/// };
/// assert_eq!(got, Some(1));
///
/// let (tx, rx) = channel(0);
/// let why = select! {
///     send(tx, "value") -> sent => panic!("no receiver, so not {sent:?}"),
///     recv(rx) -> value => panic!("a select does not send to itself: {value:?}"),
///     default(Duration::from_millis(1)) -> why => why,
/// };
/// assert_eq!(why, sudog::WaitError::TimedOut);
///
/// let ready = select! {
///     recv(quit) => true,
///     default => false,
/// };
/// assert!(!ready);
///
/// // Futures beside channels: here the result of a goroutine.
/// # #[cfg(unix)] {
/// use sudog::{run, spawn};
///
/// let answer = run(move || {
///     let computation = spawn(|| 6 * 7);
///     select! {
///         future(computation) -> answer => answer.ok(),
///         recv(quit) => None,
///     }
/// });
/// assert_eq!(answer, Some(42));
/// # }
/// ```
#[macro_export]
macro_rules! select {
    ($($arms:tt)*) => {
        $crate::__select_arm!(wait [] [] $($arms)*)
    };
}

/// Does the same as [`select!`], in an async task: awaits the cases instead of blocking the caller. The limit of
/// `default(limit)` is a `Duration` or an `Instant`.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)] {
/// use sudog::chan::{Chan, select_async};
/// use sudog::{run, spawn_async};
///
/// let sum = run(|| {
///     let (numbers, quit) = (Chan::new(0), Chan::<()>::new(0));
///     let adder = spawn_async({
///         let (numbers, quit) = (numbers.clone(), quit.clone());
///         async move {
///             let mut sum = 0;
///             loop {
///                 select_async! {
///                     recv(numbers) -> n => sum += n.unwrap_or(0),
///                     recv(quit) => break sum,
///                 }
///             }
///         }
///     });
///     (1..=4).for_each(|n| numbers.send(n));
///     quit.close();
///     adder.join().unwrap()
/// });
/// assert_eq!(sum, 10);
/// # }
/// ```
#[macro_export]
macro_rules! select_async {
    ($($arms:tt)*) => {
        $crate::__select_arm!(await [] [] $($arms)*)
    };
}

/// Reads an arm: its head, then its body, which is a block, or an expression and a comma, as in a `match`.
///
/// There is a single expansion for each arm, because all expansions nest, and a crate's `recursion_limit` is 128 unless
/// the crate sets another. `__select_case!` distinguishes the kinds of heads; its expansions do not nest in those of
/// the arms.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_arm {
    ($how:tt $cases:tt $default:tt) => {
        $crate::__select_emit!($how $cases $default)
    };
    ($how:tt $cases:tt [$($default:tt)+] default $($rest:tt)*) => {
        ::core::compile_error!("a select has one `default` at most")
    };
    ($how:tt $cases:tt [] default $(($limit:expr))? $(-> $why:pat)? => $body:block, $($rest:tt)*) => {
        $crate::__select_arm!($how $cases [{$body} ($($limit)?) ($($why)?)] $($rest)*)
    };
    ($how:tt $cases:tt [] default $(($limit:expr))? $(-> $why:pat)? => $body:block $($rest:tt)*) => {
        $crate::__select_arm!($how $cases [{$body} ($($limit)?) ($($why)?)] $($rest)*)
    };
    ($how:tt $cases:tt [] default $(($limit:expr))? $(-> $why:pat)? => $body:expr, $($rest:tt)*) => {
        $crate::__select_arm!($how $cases [{$body} ($($limit)?) ($($why)?)] $($rest)*)
    };
    ($how:tt $cases:tt [] default $(($limit:expr))? $(-> $why:pat)? => $body:expr) => {
        $crate::__select_arm!($how $cases [{$body} ($($limit)?) ($($why)?)])
    };
    ($how:tt [$($cases:tt)*] $default:tt $kind:ident $args:tt $(-> $value:pat)? => $body:block, $($rest:tt)*) => {
        $crate::__select_arm!($how [$($cases)* ($kind $args {$($value)?} {$body})] $default $($rest)*)
    };
    ($how:tt [$($cases:tt)*] $default:tt $kind:ident $args:tt $(-> $value:pat)? => $body:block $($rest:tt)*) => {
        $crate::__select_arm!($how [$($cases)* ($kind $args {$($value)?} {$body})] $default $($rest)*)
    };
    ($how:tt [$($cases:tt)*] $default:tt $kind:ident $args:tt $(-> $value:pat)? => $body:expr, $($rest:tt)*) => {
        $crate::__select_arm!($how [$($cases)* ($kind $args {$($value)?} {$body})] $default $($rest)*)
    };
    ($how:tt [$($cases:tt)*] $default:tt $kind:ident $args:tt $(-> $value:pat)? => $body:expr) => {
        $crate::__select_arm!($how [$($cases)* ($kind $args {$($value)?} {$body})] $default)
    };
    ($how:tt $cases:tt $default:tt $($rest:tt)+) => {
        $crate::__select_error!($($rest)+)
    };
}

/// The error of an arm that no macro rule accepts.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_error {
    ($($found:tt)+) => {
        ::core::compile_error!(::core::concat!(
            "expected `recv(rx) -> value => ..`, `send(tx, value) -> result => ..`, `send_from(tx, &mut option) => ..`, ",
            "`future(f) -> output => ..`, `default => ..` or `default(limit) => ..`, found: ",
            ::core::stringify!($($found)+)
        ))
    };
}

/// Makes the code of a select from its cases and arms. The borrows of the select end before an arm is evaluated.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_emit {
    (wait [$($case:tt)*] []) => {{
        let chosen = $crate::chan::macros::Static::<{ 0 $(+ $crate::__select_one!($case))* }, _>::wait(
            $crate::__select_list!($($case)*)
        );
        $crate::__select_match!(chosen $($case)*)
    }};
    (await [$($case:tt)*] []) => {{
        let chosen = $crate::chan::SelectFuture::<$crate::chan::macros::StaticCases<{ 0 $(+ $crate::__select_one!($case))* }, _>>::new(
            $crate::__select_list!($($case)*)
        )
        .await;
        $crate::__select_match!(chosen $($case)*)
    }};
    ($how:tt [$($case:tt)*] [{$default:expr} () ()]) => {{
        let chosen = $crate::chan::macros::Static::<{ 0 $(+ $crate::__select_one!($case))* }, _>::try_now(
            $crate::__select_list!($($case)*)
        );
        match chosen {
            ::core::option::Option::Some(chosen) => $crate::__select_match!(chosen $($case)*),
            ::core::option::Option::None => $default,
        }
    }};
    ($how:tt $cases:tt [$default:tt ($limit:expr) ()]) => {
        $crate::__select_emit!($how $cases [$default ($limit) (_)])
    };
    (wait [$($case:tt)*] [{$default:expr} ($limit:expr) ($why:pat)]) => {{
        let chosen = $crate::chan::macros::Static::<{ 0 $(+ $crate::__select_one!($case))* }, _>::wait_limited(
            $crate::__select_list!($($case)*),
            $limit,
        );
        match chosen {
            ::core::result::Result::Ok(chosen) => $crate::__select_match!(chosen $($case)*),
            ::core::result::Result::Err($why) => $default,
        }
    }};
    (await [$($case:tt)*] [{$default:expr} ($limit:expr) ($why:pat)]) => {{
        let chosen = $crate::chan::SelectFuture::<$crate::chan::macros::StaticCases<{ 0 $(+ $crate::__select_one!($case))* }, _>>::new(
            $crate::__select_list!($($case)*)
        )
        .until($crate::chan::macros::IntoDeadline::into_deadline($limit))
        .await;
        match chosen {
            ::core::result::Result::Ok(chosen) => $crate::__select_match!(chosen $($case)*),
            ::core::result::Result::Err($why) => $default,
        }
    }};
}

/// Expands to 1 for each case, to count the cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_one {
    ($case:tt) => {
        1
    };
}

/// Makes the list of the cases: nested pairs, see `CaseList`. One expansion takes four cases, so that there are few
/// expansions: they nest in the expansions of `__select_arm!`, and together must stay below the `recursion_limit`.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_list {
    () => { () };
    ($a:tt $b:tt $c:tt $d:tt $($rest:tt)*) => {
        ($crate::__select_case!($a), ($crate::__select_case!($b), ($crate::__select_case!($c), ($crate::__select_case!($d),
            $crate::__select_list!($($rest)*)))))
    };
    ($a:tt $($rest:tt)*) => {
        ($crate::__select_case!($a), $crate::__select_list!($($rest)*))
    };
}

/// Makes the case of an arm.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_case {
    ((recv ($rx:expr) $value:tt $body:tt)) => {
        $crate::chan::macros::RecvArm::recv_case(&$rx)
    };
    ((send ($tx:expr, $value:expr) $sent:tt $body:tt)) => {
        $crate::chan::macros::SendCase::new(&$tx, $value)
    };
    ((send_from ($tx:expr, $from:expr) $sent:tt $body:tt)) => {
        $crate::chan::macros::SendFromCase::new(&$tx, $from)
    };
    ((future ($future:expr) $output:tt $body:tt)) => {
        $crate::chan::macros::FutureCase::new($future)
    };
    (($kind:ident $args:tt $value:tt $body:tt)) => {
        $crate::__select_error!($kind $args => ..)
    };
}

/// Evaluates the arm of the chosen case. Takes four cases at a time, as `__select_list!` does.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_match {
    ($chosen:ident) => { $chosen.never() };
    ($chosen:ident $a:tt $b:tt $c:tt $d:tt $($rest:tt)*) => {
        match $chosen {
            $crate::chan::macros::Either::First($crate::__select_pattern!($a)) => $crate::__select_body!($a),
            $crate::chan::macros::Either::Rest(rest) => match rest {
                $crate::chan::macros::Either::First($crate::__select_pattern!($b)) => $crate::__select_body!($b),
                $crate::chan::macros::Either::Rest(rest) => match rest {
                    $crate::chan::macros::Either::First($crate::__select_pattern!($c)) => $crate::__select_body!($c),
                    $crate::chan::macros::Either::Rest(rest) => match rest {
                        $crate::chan::macros::Either::First($crate::__select_pattern!($d)) => $crate::__select_body!($d),
                        $crate::chan::macros::Either::Rest(rest) => $crate::__select_match!(rest $($rest)*),
                    },
                },
            },
        }
    };
    ($chosen:ident $a:tt $($rest:tt)*) => {
        match $chosen {
            $crate::chan::macros::Either::First($crate::__select_pattern!($a)) => $crate::__select_body!($a),
            $crate::chan::macros::Either::Rest(rest) => $crate::__select_match!(rest $($rest)*),
        }
    };
}

/// The pattern of an arm, for the value that the case gives to the arm.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_pattern {
    (($kind:ident $args:tt {} $body:tt)) => {
        _
    };
    (($kind:ident $args:tt {$pattern:pat} $body:tt)) => {
        $pattern
    };
}

/// The body of an arm.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_body {
    (($kind:ident $args:tt $pattern:tt {$body:expr})) => {
        $body
    };
}
