(* Five bodies under gravity, until it is stopped. *)
type body = { mutable x : float; mutable y : float; mutable vx : float; mutable vy : float; mass : float }

let bodies =
  Array.init 5 (fun i ->
      let a = float_of_int i in
      { x = 3. *. cos a; y = 3. *. sin a; vx = -. sin a; vy = cos a; mass = 1. /. (1. +. a) })

let step dt =
  for i = 0 to 4 do
    let b = bodies.(i) in
    for j = i + 1 to 4 do
      let c = bodies.(j) in
      let dx = b.x -. c.x and dy = b.y -. c.y in
      let d = (dx *. dx) +. (dy *. dy) +. 0.1 in
      let m = dt /. (d *. sqrt d) in
      b.vx <- b.vx -. (dx *. c.mass *. m);
      b.vy <- b.vy -. (dy *. c.mass *. m);
      c.vx <- c.vx +. (dx *. b.mass *. m);
      c.vy <- c.vy +. (dy *. b.mass *. m)
    done
  done;
  Array.iter (fun b -> b.x <- b.x +. (dt *. b.vx); b.y <- b.y +. (dt *. b.vy)) bodies

let () =
  while bodies.(0).mass > 0. do
    step 0.001
  done
